"""The metadata of a cluster as data and rules: who is alive, which replicas a partition has, who leads it.

    image        `ClusterImage`: brokers, nodes and partitions, replayed from the entries of the metadata store
    partition    `PartitionRegistration` and every rule that changes one
    elections    which partitions a broker may take over, and the transactions that do it
    features     levels that all brokers support, and the rules that raise them
    placement    replicas for new partitions, spread over brokers and racks
    lifecycle    what a broker may do by its lease, and which replicas a node has lost with its disk

Nothing here waits, reads a clock or changes anything: the functions return new values and the transactions that write
them (`ports.metadata_store`). A transaction names the revisions that its decision was based on, so a decision that was
made on an old image is refused by the store. The package imports `model` and `ports`.
"""
