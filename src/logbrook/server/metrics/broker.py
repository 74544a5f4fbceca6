"""The metrics of the broker as its clients meet it: connections, requests, and what goes in and out of topics."""

import platform
from collections.abc import Callable, Iterator

from logbrook.model.version import VERSION
from logbrook.server.metrics.declaration import LabelValues, Metric, Number, counter, counters, gauge, gauges, latencies
from logbrook.server.metrics.scrape import Scrape
from logbrook.server.probe import Traffic

BROKER: tuple[Metric, ...] = (
    gauges(
        "logbrook_build_info",
        "Always 1; its labels say what runs.",
        ("version", "python"),
        lambda _: [((VERSION, platform.python_version()), 1)],
    ),
    gauge(
        "logbrook_start_time_seconds",
        "When the broker started, in seconds since 1970.",
        lambda scrape: scrape.started_s,
    ),
    gauge("logbrook_uptime_seconds", "How long the broker has been running.", lambda scrape: scrape.uptime_s),
    gauge(
        "logbrook_ready",
        "1 while the broker is open for clients, 0 while it stops.",
        lambda scrape: int(scrape.broker.is_ready),
    ),
    gauge("logbrook_topics", "Topics, internal ones included.", lambda scrape: len(scrape.services.topics.metadata)),
    gauge(
        "logbrook_partitions",
        "Partitions of all topics.",
        lambda scrape: scrape.services.topics.metadata.partition_count,
    ),
)

CONNECTIONS: tuple[Metric, ...] = (
    gauge("logbrook_connections", "Connections that are open.", lambda scrape: len(scrape.broker.listener.connections)),
    counter(
        "logbrook_connections_accepted_total",
        "Connections that were let in.",
        lambda scrape: scrape.probe.connections_accepted,
    ),
    counter(
        "logbrook_connections_refused_total",
        "Connections closed as they came, because there were network.connections_max.",
        lambda scrape: scrape.probe.connections_refused,
    ),
    counter(
        "logbrook_connections_reaped_total",
        "Connections closed because they were idle or stalled.",
        lambda scrape: scrape.probe.connections_reaped,
    ),
    counter(
        "logbrook_protocol_errors_total",
        "Connections closed because they sent what is no request that is served.",
        lambda scrape: scrape.probe.protocol_errors,
    ),
    counter("logbrook_received_bytes_total", "Bytes of all requests.", lambda scrape: scrape.probe.bytes_received),
    counter("logbrook_sent_bytes_total", "Bytes of all answers.", lambda scrape: scrape.probe.bytes_sent),
    gauge(
        "logbrook_unsent_bytes",
        "Bytes of answers that slow clients have not taken, as of about a second ago.",
        lambda scrape: scrape.services.unsent_bytes,
    ),
    gauge(
        "logbrook_fetch_sessions",
        "Incremental fetch sessions (KIP-227).",
        lambda scrape: len(scrape.services.fetch_sessions),
    ),
    gauge(
        "logbrook_fetch_waits",
        "Fetches that wait for more records to come.",
        lambda scrape: len(scrape.services.fetch_waits),
    ),
)

REQUESTS: tuple[Metric, ...] = (
    counters(
        "logbrook_requests_total",
        "Requests that were decoded, by API and version.",
        ("api", "version"),
        lambda scrape: list(scrape.probe.requests.items()),
    ),
    latencies(
        "logbrook_request_duration_seconds",
        "From a request decoded to its answer encoded. A fetch waits for records, a join for the other members.",
        ("api",),
        lambda scrape: [((api,), histogram) for api, histogram in scrape.probe.latencies.items()],
    ),
    counters(
        "logbrook_request_errors_total",
        "Errors that clients were told of, by API and error code; for Produce and Fetch each partition's.",
        ("api", "code"),
        lambda scrape: list(scrape.probe.errors.items()),
    ),
    counter(
        "logbrook_handler_failures_total",
        "Requests that met a bug of the broker. Their connections were closed.",
        lambda scrape: scrape.probe.handler_failures,
    ),
)


def _traffic(read: Callable[[Traffic], Number]) -> Callable[[Scrape], Iterator[tuple[LabelValues, Number]]]:
    def numbers(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
        topics = scrape.services.topics.metadata.topics
        for name, traffic in list(scrape.probe.topics.items()):
            if name in topics:
                yield (name,), read(traffic)

    return numbers


TRAFFIC: tuple[Metric, ...] = (
    counters(
        "logbrook_topic_messages_in_total",
        "Records that producers sent and the log took.",
        ("topic",),
        _traffic(lambda traffic: traffic.messages_in),
    ),
    counters(
        "logbrook_topic_in_bytes_total",
        "Bytes of the record batches that producers sent and the log took.",
        ("topic",),
        _traffic(lambda traffic: traffic.bytes_in),
    ),
    counters(
        "logbrook_topic_messages_out_total",
        "Records that consumers were sent, by their offsets: those that were compacted away count too.",
        ("topic",),
        _traffic(lambda traffic: traffic.messages_out),
    ),
    counters(
        "logbrook_topic_out_bytes_total",
        "Bytes of the record batches that consumers were sent.",
        ("topic",),
        _traffic(lambda traffic: traffic.bytes_out),
    ),
)
