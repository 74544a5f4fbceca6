"""The chaos test: faults in a cluster of real processes under load, and a check of the clients' histories.

python -m logbrook.testing.chaos --faults 200

    plan            the faults of a run, drawn from a seed
    campaign        runs a plan: faults, waits for health, final read, comparison of replicas, verdict
    cluster         three etcds, three brokers, and a small disk; etcd_admin asks etcd
    network, proxy  a proxy process through which every connection goes, and that holds the bytes of links that are cut
    faults          begins and ends each kind of fault
    health          waits until all replicas are in sync, or says what is wrong
    load            the clients of `logbrook.testing.kill`, and those of python_clients; progress waits for each
    replicas        compares the logs of the brokers byte by byte
    outcome         the results of the steps and runs

The clients need confluent-kafka, kafka-python and aiokafka, so `logbrook.testing` does not import this package.
"""
