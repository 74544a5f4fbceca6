"""Throughput and CPU of a broker with TLS beside plain text, in one broker, with librdkafka as the load.

Both listeners are of the same broker and take turns. The load encrypts on the other core, so the throughput with TLS
depends on that core, too; the CPU time per GB is that of the broker alone.
"""

import os
import statistics
import tempfile
from pathlib import Path

from bench import librdkafka
from bench.broker_process import TOPIC, BrokerProcess, serving
from bench.rows import Row, seconds
from logbrook.testing.processes import free_port
from tests.certificates import Certificates

_MESSAGE = os.urandom(1000)
_MESSAGES = 250_000
_ROUNDS = 3
_POOL = librdkafka.Pool([_MESSAGE] * 1_000, partitions=1)
_QUEUED_MAX = 500_000
_WAIT_S_MAX = 10.0
_GB = _MESSAGES * len(_MESSAGE) / 1e9


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        certificates = Certificates(Path(directory))
        issued = certificates.issue()
        port = free_port()
        flags = ["--listener", f"TLS=127.0.0.1:{port}", "--listener-protocol", "TLS=SSL", "--durability", "interval"]
        files = ["--security-certificate", str(issued.certificate), "--security-key", str(issued.key)]
        with serving(*flags, *files) as broker:
            plain = {"bootstrap.servers": broker.address}
            tls = {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SSL",
                "ssl.ca.location": str(certificates.ca),
            }
            # The first round opens files and warms caches.
            _measure(broker, plain, TOPIC)
            rounds = [
                (_measure(broker, plain, f"{TOPIC}-{number}"), _measure(broker, tls, f"{TOPIC}-tls-{number}"))
                for number in range(_ROUNDS)
            ]
    rows = []
    for index, name, unit in (
        (0, "produce: broker CPU", "s/GB"),
        (1, "produce: throughput", "MB/s"),
        (2, "fetch: broker CPU", "s/GB"),
        (3, "fetch: throughput", "MB/s"),
    ):
        for side, protocol in enumerate(("plain text", "TLS")):
            value = statistics.median(measured[side][index] for measured in rounds)
            rows.append(Row(f"1 KB messages over {protocol}, {name}", value, unit))
    return rows


def _measure(broker: BrokerProcess, settings: dict[str, str], topic: str) -> tuple[float, float, float, float]:
    """Return CPU seconds per GB and MB/s, of producing and of fetching."""
    with librdkafka.producing({**settings, "queue.buffering.max.messages": _QUEUED_MAX}, topic) as load:
        before = broker.cpu_s()
        produce_s = seconds(lambda: _produce(load))
        produce_cpu_s = broker.cpu_s() - before
    with librdkafka.consuming(settings["bootstrap.servers"], topic, partitions=1, settings=settings) as consumer:
        before = broker.cpu_s()
        fetch_s = seconds(lambda: consumer.consume(_MESSAGES, _WAIT_S_MAX))
        fetch_cpu_s = broker.cpu_s() - before
    return produce_cpu_s / _GB, 1000 * _GB / produce_s, fetch_cpu_s / _GB, 1000 * _GB / fetch_s


def _produce(load: librdkafka.Producer) -> None:
    for _ in range(_MESSAGES // len(_POOL)):
        load.produce(_POOL, len(_POOL))
    load.flush()
