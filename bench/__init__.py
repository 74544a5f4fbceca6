"""Benchmarks with goals; `make bench` runs all of them.

A module with a function `run` is a benchmark and returns rows (`rows.py`). `engine.py` opens data directories,
`broker_process.py` runs a broker in its own process, `librdkafka.py` is the load. `guard.py` has the ratios that
`make test` checks; `clusters/` runs clusters of three nodes; `peers/` compares Logbrook with other systems.
"""
