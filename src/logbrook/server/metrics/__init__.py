"""Metrics for Prometheus: declared once, with how each is read, and read when somebody asks.

    declaration     what a metric is, and the line of text it becomes
    broker, storage, partitions, groups     the declarations, with the numbers they read
    catalogue       all of them, in the order in which they are shown
    exposition      the page that Prometheus scrapes, a piece at a time
    reference       docs/METRICS.md

The engine and the server count plain numbers in their probes whether somebody looks or not; everything else here
happens in a scrape. A broker has as many time series as it has topics, partitions and groups: what was deleted is
not shown any more.
"""
