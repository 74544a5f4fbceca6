"""Metrics of the broker, its connections and requests, and of the traffic per topic."""

import platform
from collections.abc import Callable, Iterator

from logbrook.model.version import VERSION
from logbrook.server.metrics.declaration import LabelValues, Metric, Number, counter, counters, gauge, gauges, latencies
from logbrook.server.metrics.scrape import Scrape
from logbrook.server.probe import QuotaKind, Traffic

BROKER: tuple[Metric, ...] = (
    gauges(
        "logbrook_build_info",
        "Always 1; the labels have the versions of Logbrook and Python.",
        ("version", "python"),
        lambda _: [((VERSION, platform.python_version()), 1)],
    ),
    gauge(
        "logbrook_start_time_seconds",
        "Start time of the broker, in seconds since 1970.",
        lambda scrape: scrape.started_s,
    ),
    gauge("logbrook_uptime_seconds", "Time since the start of the broker.", lambda scrape: scrape.uptime_s),
    gauge(
        "logbrook_ready",
        "1 while the broker accepts clients, 0 while it stops.",
        lambda scrape: int(scrape.broker.is_ready),
    ),
    gauge(
        "logbrook_topics",
        "Number of topics, including internal ones.",
        lambda scrape: len(scrape.services.topics.metadata),
    ),
    gauge(
        "logbrook_partitions",
        "Number of partitions of all topics.",
        lambda scrape: scrape.services.topics.metadata.partition_count,
    ),
)

CONNECTIONS: tuple[Metric, ...] = (
    gauge("logbrook_connections", "Open connections.", lambda scrape: len(scrape.broker.listener.connections)),
    counter(
        "logbrook_connections_accepted_total",
        "Connections accepted.",
        lambda scrape: scrape.probe.connections_accepted,
    ),
    counter(
        "logbrook_connections_refused_total",
        "Connections closed immediately because network.connections_max were open.",
        lambda scrape: scrape.probe.connections_refused,
    ),
    counter(
        "logbrook_connections_reaped_total",
        "Connections closed because they were silent, idle, stalled, not authenticated in time or expired.",
        lambda scrape: scrape.probe.connections_reaped,
    ),
    counter(
        "logbrook_tls_handshake_failures_total",
        "TLS handshakes that failed, took too long or were given up for newer ones.",
        lambda scrape: scrape.probe.tls_handshake_failures,
    ),
    counter(
        "logbrook_authentications_total",
        "SASL authentications and re-authentications that succeeded.",
        lambda scrape: scrape.probe.authentications,
    ),
    counter(
        "logbrook_authentication_failures_total",
        "SASL authentications that failed.",
        lambda scrape: scrape.probe.authentication_failures,
    ),
    counter(
        "logbrook_protocol_errors_total",
        "Connections closed because of an invalid or unsupported request.",
        lambda scrape: scrape.probe.protocol_errors,
    ),
    counter("logbrook_received_bytes_total", "Bytes of all requests.", lambda scrape: scrape.probe.bytes_received),
    counter("logbrook_sent_bytes_total", "Bytes of all responses.", lambda scrape: scrape.probe.bytes_sent),
    gauge(
        "logbrook_held_request_bytes",
        "Bytes of requests in memory, received in part or not yet answered. Its limit is network.received_bytes_max.",
        lambda scrape: scrape.broker.listener.receive_memory.held_bytes,
    ),
    gauge(
        "logbrook_unsent_bytes",
        "Bytes of responses in memory, because clients read slowly. Its limit is network.answers_bytes_max.",
        lambda scrape: scrape.services.response_memory.used_bytes,
    ),
    gauge(
        "logbrook_fetch_sessions",
        "Incremental fetch sessions (KIP-227).",
        lambda scrape: len(scrape.services.fetch_sessions),
    ),
    counter(
        "logbrook_fetch_session_missed_changes_total",
        "Changes of partitions that a fetch session was not told of and found up to a minute late: bugs of the broker.",
        lambda scrape: scrape.services.fetch_sessions.missed_changes,
    ),
    gauge(
        "logbrook_fetch_waits",
        "Fetch requests that wait for records.",
        lambda scrape: len(scrape.services.fetch_purgatory),
    ),
)

REQUESTS: tuple[Metric, ...] = (
    counters(
        "logbrook_requests_total",
        "Requests by API and version.",
        ("api", "version"),
        lambda scrape: list(scrape.probe.requests.items()),
    ),
    latencies(
        "logbrook_request_duration_seconds",
        "Time from a decoded request to its encoded response. Fetch and JoinGroup include their waiting time.",
        ("api",),
        lambda scrape: [((api,), histogram) for api, histogram in scrape.probe.latencies.items()],
    ),
    counters(
        "logbrook_request_errors_total",
        "Error codes in responses, by API and code; one for each topic, partition or group that has one.",
        ("api", "code"),
        lambda scrape: list(scrape.probe.errors.items()),
    ),
    counter(
        "logbrook_handler_failures_total",
        "Requests that failed because of a bug in the broker. Their connections were closed.",
        lambda scrape: scrape.probe.handler_failures,
    ),
)

QUOTAS: tuple[Metric, ...] = (
    counters(
        "logbrook_quota_throttled_total",
        "Responses with a throttle time, and connections refused, by quota: produce, fetch, request and so on.",
        ("kind",),
        lambda scrape: [((kind,), scrape.probe.throttled[kind]) for kind in QuotaKind],
    ),
    counters(
        "logbrook_quota_throttle_seconds_total",
        "Sum of the throttle times, by quota.",
        ("kind",),
        lambda scrape: [((kind,), scrape.probe.throttled_s[kind]) for kind in QuotaKind],
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
        "Records appended by producers.",
        ("topic",),
        _traffic(lambda traffic: traffic.messages_in),
    ),
    counters(
        "logbrook_topic_in_bytes_total",
        "Bytes of the record batches appended by producers.",
        ("topic",),
        _traffic(lambda traffic: traffic.bytes_in),
    ),
    counters(
        "logbrook_topic_messages_out_total",
        "Records sent to consumers, counted by offsets: records removed by compaction count too.",
        ("topic",),
        _traffic(lambda traffic: traffic.messages_out),
    ),
    counters(
        "logbrook_topic_out_bytes_total",
        "Bytes of the record batches sent to consumers.",
        ("topic",),
        _traffic(lambda traffic: traffic.bytes_out),
    ),
)
