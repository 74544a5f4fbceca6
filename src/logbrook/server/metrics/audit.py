"""Metrics of the audit log."""

from logbrook.server.metrics.declaration import Metric, counter, counters
from logbrook.server.security.audit import SINKS

AUDIT_EVENTS: tuple[Metric, ...] = (
    counters(
        "logbrook_audit_events_total",
        "Audit events recorded, by kind: authentications, denials, administrative changes.",
        ("event",),
        lambda scrape: [((event,), count) for event, count in scrape.services.audit.recorded.items()],
    ),
    counter(
        "logbrook_audit_events_suppressed_total",
        "Audit events not recorded because a client caused too many of the same kind.",
        lambda scrape: scrape.services.audit.suppressed,
    ),
    counters(
        "logbrook_audit_events_dropped_total",
        "Audit events lost because the audit file or topic could not take them in time. They are in the log.",
        ("sink",),
        lambda scrape: [((name,), scrape.services.audit.dropped(name)) for name in SINKS],
    ),
)
