"""Compares Logbrook with Apache Kafka, Redis Streams and NATS JetStream (`make bench-peers`, `docs/BENCHMARKS.md`).

`system.py` describes a system and its server; `logbrook.py`, `kafka.py`, `redis.py` and `nats.py` are the systems. A
load (`load.py`, `*_load.py`) is a client that runs in worker processes (`workers.py`). `lab.py` starts servers and runs
rounds; `throughput.py`, `java.py`, `latency.py`, `footprint.py`, `scale.py`, `coordinators.py`, `restart.py` and
`cluster.py` (three nodes, see `bench/clusters`) are the measurements. `results.py` keeps rows in `bench/peers.json`;
`comparison.py`, `report.py`, `charts.py` and `prose.py` write the document.
"""
