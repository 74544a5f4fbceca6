"""Metrics for Prometheus, read from the broker's state when a page is requested.

    declaration   `Metric`: name, help, labels, and the function that reads its values
    broker, storage, partitions, coordinators, cluster   the metrics
    scrape        `Scrape`, what one page is read from, and `MetricsPages`, which opens pages
    exposition    all metrics in order, and the page in Prometheus' text format, piece by piece
    reference     docs/METRICS.md

The storage engine and the server count in plain integers (`storage.probe`, `server.probe`) whether there is a scrape or
not; everything else happens during a scrape. There are series per topic, partition and group; they end when those are
deleted. May import the state it reads: `server`, `storage` and `core`.
"""
