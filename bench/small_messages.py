"""Throughput of 100-byte messages in prebuilt batches.

A client that batches message by message is the bottleneck (librdkafka makes about two million per second on one core).
`logbrook bench` sends a prebuilt batch and reads only batch headers, so that the broker or the machine is the limit.
Its messages are identical, and lz4 compresses them to a twentieth.
"""

import json
import statistics
import subprocess
import sys
from typing import Any

from bench.broker_process import BrokerProcess, serving, warm_page_cache
from bench.rows import Row

_ROUNDS = 5
_SECONDS = 2
_MESSAGES_PER_S_MIN = 3_000_000
_CODECS = ("none", "lz4")


def run() -> list[Row]:
    rows = []
    for durability in ("fsync", "interval"):
        with serving("--durability", durability) as broker:
            for codec in _CODECS:
                rows += _measure(broker, durability, codec)
    return rows


def _measure(broker: BrokerProcess, durability: str, codec: str) -> list[Row]:
    name = f"100 B in batches of 5,000, {codec}, durability {durability}"
    alone = [_bench(broker, codec, consumers=0)["produce"] for _ in range(_ROUNDS)]
    both = [_bench(broker, codec, consumers=1) for _ in range(_ROUNDS)]
    rounds_by_case = {
        "produced": alone,
        "produced and consumed at once": [min((result["produce"], result["consume"]), key=_rate) for result in both],
    }
    return [
        Row(f"{name}: {case}", statistics.median(map(_rate, rounds)), "messages/s", _MESSAGES_PER_S_MIN)
        for case, rounds in rounds_by_case.items()
    ]


def _bench(broker: BrokerProcess, codec: str, consumers: int) -> dict[str, Any]:
    warm_page_cache(2 << 30)
    command = [sys.executable, "-m", "logbrook", "bench", "--bootstrap", broker.address, "--json", "--size", "100"]
    options = ["--batch", "5000", "--duration", str(_SECONDS), "--consumers", str(consumers), "--compression", codec]
    process = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(process.stdout)
    assert result["failure"] is None, result["failure"]
    return result


def _rate(side: dict[str, Any]) -> float:
    per_s: float = side["records_per_s"]
    return per_s
