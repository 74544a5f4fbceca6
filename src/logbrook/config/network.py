"""What may be set for the broker's sockets: where it listens, and how much of a stranger it puts up with."""

from logbrook.config.setting import Settings, setting

_MIB = 1 << 20


class NetworkConfig(Settings):
    """The settings of the listeners for clients."""

    listen: str = setting("127.0.0.1:9092", "HOST:PORT to listen on; port 0 takes a free one.", flag="listen")
    advertise: str | None = setting(
        None,
        "HOST:PORT that clients are told to connect to; without it, where the broker listens.",
        flag="advertise",
    )
    json_listen: str = setting(
        "",
        "HOST:PORT for the JSON protocol, or a port of 127.0.0.1 alone; empty for none.",
        flag="json-port",
    )
    connections_max: int = setting(
        10_000, "More connections than this are closed as they come.", kafka="max.connections", at_least=1
    )
    connection_idle_ms: int = setting(
        600_000,
        "A connection that asks for nothing for this long is closed.",
        unit="ms",
        kafka="connections.max.idle.ms",
        at_least=1,
    )
    connection_stalled_ms: int = setting(
        30_000,
        "A connection that takes this long over 64 KiB of a request or of an answer is closed.",
        unit="ms",
        at_least=1,
    )
    request_bytes_max: int = setting(
        100 * _MIB,
        "The largest produce request; others may have a sixteenth of it, though never less than 1 MiB.",
        unit="bytes",
        kafka="socket.request.max.bytes",
        at_least=1024,
        at_most=2**31 - 1,
    )
    json_request_bytes_max: int = setting(
        2 * _MIB,
        "The largest request on the listener for the JSON protocol. Others wait while it is read.",
        unit="bytes",
        at_least=1024,
        at_most=64 * _MIB,
    )
    in_flight_bytes_max: int = setting(
        32 * _MIB,
        "Once a connection has this much in requests and answers under way, no more is read from it.",
        unit="bytes",
        at_least=1024,
    )
    in_flight_requests_max: int = setting(
        128, "Once a connection has this many requests under way, no more is read from it.", at_least=1
    )
    received_bytes_max: int = setting(
        1024 * _MIB,
        "Once the requests of all connections that are not answered yet hold this much, reading large ones waits.",
        unit="bytes",
        kafka="queued.max.request.bytes",
        at_least=1024,
    )
    fetch_bytes_max: int = setting(
        16 * _MIB,
        "The most that one fetch is answered with, whatever the client asks for; a first batch may be larger.",
        unit="bytes",
        kafka="fetch.max.bytes",
        at_least=1024,
    )
    answers_bytes_max: int = setting(
        256 * _MIB,
        "Once the answers that clients have not taken yet hold this much, fetches are answered with little.",
        unit="bytes",
        at_least=1024,
    )
    fetch_sessions_max: int = setting(
        1_000,
        "How many incremental fetch sessions are remembered (KIP-227).",
        kafka="max.incremental.fetch.session.cache.slots",
        at_least=0,
    )
    stop_ms: int = setting(
        10_000, "How long a stop waits for the answers to requests it has accepted.", unit="ms", at_least=0
    )
