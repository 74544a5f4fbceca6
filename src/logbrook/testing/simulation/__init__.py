"""Whole brokers in simulated time: the real server, storage and clients' requests on a virtual event loop.

    loop          `simulate` and `SimulationLoop`: time jumps to the next timer; threads are replaced by callbacks
    network       connections in memory, with latency, resets and hosts that cannot reach each other
    broker        `SimulatedBroker`: a broker on a crashable disk, with kills and power losses
    client        a client for single requests
    transactions  a transactional producer, and a check of what committed readers see
    groups        members of a consumer group, and a check of their partitions and offsets
    admins        an administrator who creates and deletes topics, and a check of them
    campaign      random schedules by seed, judged by what clients saw (`python -m logbrook.testing.simulation`)
    cluster           three simulated brokers and their metadata store
    cluster_plan      what a seed of a cluster decides: times, clients and kinds of faults
    cluster_faults    the faults of a cluster
    cluster_campaign  random schedules of a cluster (`--cluster`)
    runner            many schedules in several processes, continued over several runs

Everything runs in one thread, and a seed decides latencies and faults, so a schedule is the same in every run. A
minute of simulated time takes about a second. Services that use aiokafka run in it, too (docs/TESTING.md). Imports
`server` and everything below it.
"""
