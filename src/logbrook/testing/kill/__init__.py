"""The kill test: SIGKILL a loaded broker repeatedly and check the clients' histories for anomalies.

python -m logbrook.testing.kill --kills 100

    plan             when the broker is killed and with which flags; the outcome of a run
    campaign         runs a plan: starts, kills, final read, verdict of `logbrook.testing.history`
    broker_process   the broker's process
    load             all clients of a run: producers, transactional producers, group members, a prober, a topic maker
    load_client      the base class of the clients and the state they share; clients wraps confluent-kafka
    final_read       reads every partition at the end

The clients need confluent-kafka, so `logbrook.testing` does not import this package.
"""
