"""The network server: asyncio around the storage engine and the deterministic machines of `core`.

A Kafka request passes through these modules, all on one event loop:

    listener -> connection -> dispatch -> handlers/<api>.py -> log_appender or fetch_purgatory -> dispatch -> connection

    broker, run           creation, start and stop of a broker; the `serve` command
    services              the components that handlers use
    topics                cluster metadata and the logs of partitions
    coordinators/         group and transaction coordinators on the event loop, around `core`
    maintenance           checkpoints, retention, compaction, verification
    http, operations      the HTTP listener and its endpoints
    metrics/, probe, logs metrics, counters, the log
    errors                error codes for the errors of all subsystems
    json/                 RustLog's JSON protocol

It may import `storage`, `core`, `protocol`, `records`, `ports`, `config` and `model`; only `cli` and `testing` import
it.
"""
