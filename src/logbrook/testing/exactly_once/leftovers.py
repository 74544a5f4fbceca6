"""State that a killed driver leaves behind: open transactions, uncommitted data files, processes."""

import json
import os
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from logbrook.client import Client, RetryPolicy
from logbrook.client.admin import Admin

_OPEN = "Ongoing"
_ANSWER_S_MAX = 60.0


def open_topics(servers: str) -> set[str]:
    """Return the topics of all open transactions. Waits for a broker that has just been started."""

    def ask() -> set[str]:
        with Client(servers) as client:
            transactions = Admin(client).transactions.all()
        open_transactions = [transaction for transaction in transactions if transaction.state == _OPEN]
        return {partition.topic for transaction in open_transactions for partition in transaction.partitions}

    return RetryPolicy(timeout_s=_ANSWER_S_MAX).run(ask)


def uncommitted_files(table: Path) -> set[str]:
    """Return the paths of data files that no commit of a Delta table has ever referenced."""
    actions = [json.loads(line) for log in table.glob("_delta_log/*.json") for line in log.read_text().splitlines()]
    committed = {os.path.basename(action["add"]["path"]) for action in actions if "add" in action}
    return {str(table / name) for name in _data_files(table) - committed}


def processes_of(directory: str) -> list[int]:
    """Return the processes that have `directory` as their temporary directory."""
    setting = f"TMPDIR={directory}".encode()
    pids = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                pids.append(int(pid))
    return pids


def kill_processes_of(directory: str) -> None:
    for pid in processes_of(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)


def _data_files(table: Path) -> set[str]:
    try:
        return {name for name in os.listdir(table) if name.endswith(".parquet")}
    except FileNotFoundError:
        return set()
