"""Clusters of three nodes for benchmarks: Logbrook with etcd, and Kafka (KRaft).

`nodes.py` describes a cluster of processes, `logbrook.py` and `kafka.py` are the systems, `network.py` can cut off a
node, and `failover.py` measures how long a client cannot write after a fault.
"""
