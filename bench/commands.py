"""CPU time of `logbrook produce` and `logbrook consume`, and of kcat for the same records if it is installed.

The goals are a fifth of the times of a version that encoded and printed records one by one: 5.1 s to produce a million
records, and 24 s to consume five million.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.broker_process import BrokerProcess
from bench.rows import Row
from logbrook.client import Client

_PRODUCED, _CONSUMED = 1_000_000, 5_000_000
_PRODUCE_GOAL_S, _CONSUME_GOAL_S = 5.1 / 5, 24 / 5
_TOPIC = "lines"
_KEYED_TOPIC, _PARTITIONS = "keyed-lines", 6
# The first space of a line ends its key.
_KEYED = ["-K", " "]
_ROUNDS = 3


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        lines = Path(directory) / "lines.txt"
        lines.write_bytes(
            b"".join(b"%07d a line of text, of the length that lines have\n" % n for n in range(_PRODUCED))
        )
        broker = BrokerProcess(f"{directory}/data", "--durability", "interval")
        try:
            return _measure(broker.address, lines)
        finally:
            broker.stop()


def _measure(address: str, lines: Path) -> list[Row]:
    with Client(address) as client:
        client.create_topic(_TOPIC)
        client.create_topic(_KEYED_TOPIC, _PARTITIONS)
    logbrook = [sys.executable, "-m", "logbrook"]
    rounds = _CONSUMED // _PRODUCED
    produce = [*logbrook, "produce", _TOPIC, "-b", address, "-f", str(lines)]
    produce_s = statistics.median(_cpu_s(produce) for _ in range(rounds))
    rows = [Row(f"logbrook produce, {_PRODUCED:,} lines: CPU", produce_s, "s", _PRODUCE_GOAL_S, higher_is_better=False)]
    keyed = [*logbrook, "produce", _KEYED_TOPIC, "-b", address, "-f", str(lines), *_KEYED]
    keyed_name = f"{_PRODUCED:,} keys in {_PARTITIONS} partitions: CPU"
    keyed_s = statistics.median(_cpu_s(keyed) for _ in range(_ROUNDS))
    rows.append(Row(f"logbrook produce, {keyed_name}", keyed_s, "s", higher_is_better=False))
    for name, flags in (("values", []), ("keys and offsets", ["--print-key", "--print-offset"]), ("JSON", ["--json"])):
        consume = [*logbrook, "consume", _TOPIC, "-b", address, *flags]
        consume_s = statistics.median(_cpu_s(consume) for _ in range(_ROUNDS))
        goal = _CONSUME_GOAL_S if name == "values" else None
        rows.append(Row(f"logbrook consume, {_CONSUMED:,} {name}: CPU", consume_s, "s", goal, higher_is_better=False))
    if kcat := shutil.which("kcat"):
        consume_s = _cpu_s([kcat, "-C", "-b", address, "-t", _TOPIC, "-e", "-q"])
        rows.append(Row(f"kcat, {_CONSUMED:,} values: CPU", consume_s, "s"))
        produce_s = _cpu_s([kcat, "-P", "-b", address, "-t", _TOPIC, "-l", str(lines)])
        rows.append(Row(f"kcat, {_PRODUCED:,} lines: CPU", produce_s, "s"))
        keyed_s = _cpu_s([kcat, "-P", "-b", address, "-t", _KEYED_TOPIC, "-l", *_KEYED, str(lines)])
        rows.append(Row(f"kcat, {keyed_name}", keyed_s, "s"))
    return rows


def _cpu_s(command: Sequence[str]) -> float:
    """Return user and system time of a command, whose output is discarded."""
    # With bytecode caching, as an installed command has it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime
