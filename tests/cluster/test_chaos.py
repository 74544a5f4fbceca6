"""Faults in a cluster of processes under load break no promise, and the chaos test finds promises that are broken.

A failure names its seed and the directory that it has kept. To run it again:

    python -m logbrook.testing.chaos --faults 10 --seed 1
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logbrook.config import LogConfig, StorageConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch
from logbrook.ports import OsFiles, SystemClock
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing.chaos.campaign import ChaosCampaign
from logbrook.testing.chaos.cluster import why_no_small_disk
from logbrook.testing.chaos.outcome import ChaosOutcome, longest_gap_s, summary, table
from logbrook.testing.chaos.plan import ChaosPlan, FaultKind, plans
from logbrook.testing.chaos.replicas import differences
from logbrook.testing.chaos.spark_copy import copy_problems
from logbrook.testing.history import Event, Rule, check
from logbrook.testing.history.events import (
    Acknowledged,
    Committed,
    CommittedSeen,
    FinalCommittedRead,
    FinalRead,
    Polled,
    TransactionCommitted,
)
from logbrook.testing.processes import wait_until
from tests.etcd_command import etcd_or_skip
from tests.interop.client_leaks import UNCONNECTED_SOCKETS, collect_leaks
from tests.interop.java.conftest import NEWEST, or_skip
from tests.interop.java.jars import clients_classpath

# The clients of a run leak sockets, which are collected before it ends.
pytestmark = pytest.mark.filterwarnings(UNCONNECTED_SOCKETS)

PARTITION = TopicPartition("events", 0)
# One of each group of kinds.
KINDS = (
    FaultKind.KILL,
    FaultKind.CUT_BROKERS_ONE_WAY,
    FaultKind.MOVE_PARTITIONS,
    FaultKind.PAUSE,
    FaultKind.KILL_ETCD_LEADER,
    FaultKind.REPLACE_DISK,
    FaultKind.ISOLATE,
    FaultKind.ELECT,
    FaultKind.FULL_DISK,
    FaultKind.CUT_ETCD,
)
END_S_MAX = 60.0


def run(plan: ChaosPlan) -> ChaosOutcome:
    outcome = ChaosCampaign(plan, etcd_or_skip()).run()
    collect_leaks()
    print(outcome, *outcome.results, summary([outcome]), sep="\n")  # noqa: T201 - the result
    return outcome


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> ChaosOutcome:
    """A run of ten faults, which are short."""
    has_small_disk = not why_no_small_disk(tmp_path_factory.mktemp("mount"))
    kinds = tuple(kind for kind in KINDS if has_small_disk or kind is not FaultKind.FULL_DISK)
    return run(ChaosPlan(len(kinds), seed=1, scale=0.4, has_small_disk=has_small_disk, kinds=kinds))


def test_clients_see_every_promise_kept_over_ten_faults(outcome: ChaosOutcome) -> None:
    assert outcome.is_good, str(outcome)
    assert len(outcome.results) == outcome.plan.faults >= len(KINDS) - 1
    counts = outcome.verdict.counts
    assert counts.acknowledged > 100 * len(KINDS), "there was no load to speak of"
    assert counts.polled > counts.acknowledged, "two groups and a reader read everything"
    assert min(counts.committed, counts.resumed, counts.latest_seen, counts.transactions_committed) > 0


@pytest.mark.long
def test_a_java_producer_sees_every_promise_kept() -> None:
    classpath = or_skip(lambda: clients_classpath(NEWEST))
    outcome = run(ChaosPlan(5, seed=2, scale=0.5, has_small_disk=False, java_classpath=classpath))
    assert outcome.is_good, str(outcome)
    java = [event for event in outcome.events if isinstance(event, Acknowledged) and "java" in event.producer]
    assert len(java) > 100


@pytest.mark.long
def test_a_query_of_spark_neither_fails_nor_loses_nor_repeats_a_record() -> None:
    kinds = (FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT_BROKERS)
    outcome = run(ChaosPlan(len(kinds), seed=3, has_small_disk=False, kinds=kinds, has_spark=True))
    assert outcome.is_good, str(outcome)


# Planted bugs: the history of the run with something changed in it, as it would be if a broker had done so.


def final(events: list[Event]) -> FinalRead:
    return next(event for event in events if isinstance(event, FinalRead) and event.partition == PARTITION)


def lose_an_acknowledged_record(events: list[Event]) -> list[Event]:
    read = final(events)
    lost = next(event for event in events if isinstance(event, Acknowledged) and event.partition == PARTITION)
    kept = [record for record in read.records if record != (lost.offset, lost.value)]
    return replaced(events, read, read._replace(records=kept))


def repeat_an_idempotent_record(events: list[Event]) -> list[Event]:
    read = final(events)
    repeated = next(value for _, value in read.records if value.startswith("librdkafka-idempotent"))
    last = max(offset for offset, _ in read.records)
    records = [*read.records, (last + 1, repeated)]
    return replaced(events, read, read._replace(records=records, log_end_offset=last + 2))


def replace_a_record_that_was_read(events: list[Event]) -> list[Event]:
    polled = next(event for event in events if isinstance(event, Polled) and event.partition == PARTITION)
    return replaced(events, polled, polled._replace(value="librdkafka-plain.1:0"))


def hide_a_record_of_a_transaction(events: list[Event]) -> list[Event]:
    committed = {event.producer for event in events if isinstance(event, TransactionCommitted)}
    read = next(event for event in events if isinstance(event, FinalCommittedRead) and event.partition == PARTITION)
    hidden = next(record for record in read.records if record[1].rpartition(":")[0] in committed)
    return replaced(events, read, read._replace(records=[record for record in read.records if record != hidden]))


def return_to_an_earlier_commit(events: list[Event]) -> list[Event]:
    commits = [event for event in events if isinstance(event, Committed) and event.partition == PARTITION]
    first = commits[0]
    last = [event for event in commits if event.group == first.group][-1]
    assert first.offset < last.offset
    now_ns = events[-1].at_ns
    return [*events, CommittedSeen(now_ns + 2, now_ns + 1, "planted", first.group, PARTITION, first.offset)]


def replaced(events: list[Event], old: Event, new: Event) -> list[Event]:
    return [new if event is old else event for event in events]


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (lose_an_acknowledged_record, Rule.LOST_WRITE),
        (repeat_an_idempotent_record, Rule.DUPLICATE),
        (replace_a_record_that_was_read, Rule.TWO_VALUES),
        (hide_a_record_of_a_transaction, Rule.TORN_TRANSACTION),
        (return_to_an_earlier_commit, Rule.COMMIT_WENT_BACK),
    ],
)
def test_planted_bugs_are_found(outcome: ChaosOutcome, plant: Callable[[list[Event]], list[Event]], rule: Rule) -> None:
    assert rule in {anomaly.rule for anomaly in check(plant(outcome.events)).anomalies}


# Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> dict[int, Path]:
    """The data directories of three brokers with the same records."""
    directories = {number: tmp_path / str(number) for number in (1, 2, 3)}
    for directory in directories.values():
        write(directory, b"first", b"second")
    return directories


def write(path: Path, *values: bytes) -> None:
    path.mkdir(exist_ok=True)
    clock = SystemClock()
    directory = LogDirectory.open(OsFiles(str(path)), StorageConfig(), clock=clock, now_ms=0)
    if PARTITION not in directory:
        directory.create(PARTITION, LogConfig())
    for value in values:
        directory.get(PARTITION).append(build_batch([Record(value=value)]), now_ms=0, leader_epoch=LeaderEpoch(0))
    directory.close()


def test_replicas_that_are_the_same_are_no_problem(replicas: dict[int, Path]) -> None:
    assert differences(replicas, [PARTITION]) == []


def test_a_replica_with_another_record_is_found(replicas: dict[int, Path]) -> None:
    write(replicas[1], b"third")
    write(replicas[2], b"3rd")
    write(replicas[3], b"third")
    (problem,) = differences(replicas, [PARTITION])
    assert problem.startswith("events-0: the replicas of the brokers 1 and 2 differ at offset 2")


def test_a_replica_without_the_last_record_is_found(replicas: dict[int, Path]) -> None:
    for number in (1, 2):
        write(replicas[number], b"third")
    (problem,) = differences(replicas, [PARTITION])
    assert problem.endswith("the brokers 1 and 3 differ at offset 2; they end at the offsets 3 and 2")


# Reports and plans


def test_the_longest_pause_of_a_partition_counts() -> None:
    second = 1_000_000_000
    other = TopicPartition("events", 1)
    events: list[Event] = [
        *(Acknowledged(number * second, "p", PARTITION, number, f"p:{number}") for number in range(11)),
        *(Acknowledged(number * second, "p", other, number, f"q:{number}") for number in (1, 2, 6, 9)),
    ]
    assert longest_gap_s(events, [PARTITION, other], 0, 10 * second) == 4.0
    assert longest_gap_s(events, [PARTITION], 0, 10 * second) == 1.0
    assert longest_gap_s([], [PARTITION], 0, 10 * second) == 10.0


def test_a_copy_of_spark_that_differs_is_found() -> None:
    assert copy_problems(PARTITION, ["a", "b"], ["a", "b"]) == []
    assert "did not copy 1 values" in copy_problems(PARTITION, ["a", "b"], ["a"])[0]
    assert "copied 1 values twice" in copy_problems(PARTITION, ["a", "b"], ["a", "b", "a"])[0]
    assert "another order" in copy_problems(PARTITION, ["a", "b"], ["b", "a"])[0]


def test_a_seed_decides_the_faults_and_every_kind_is_drawn() -> None:
    plan = ChaosPlan(len(FaultKind), seed=7)
    assert plan.steps() == plan.steps() != replace(plan, seed=8).steps()
    assert {fault.kind for step in plan.steps() for fault in step.faults} == set(FaultKind)
    assert sum(len(step.faults) for step in ChaosPlan(50, seed=7).steps()) == 50


def test_two_disks_are_never_replaced_at_the_same_time_and_no_broker_is_stopped_twice() -> None:
    stopping = {FaultKind.KILL, FaultKind.PAUSE, FaultKind.REPLACE_DISK}
    pairs = [step.faults for seed in range(200) for step in ChaosPlan(30, seed).steps() if len(step.faults) == 2]
    assert len(pairs) > 500
    for first, second in pairs:
        assert {first.kind, second.kind} != {FaultKind.REPLACE_DISK}
        assert first.broker != second.broker or not {first.kind, second.kind} <= stopping


def test_faults_are_divided_among_runs() -> None:
    made = plans(25, 3, 10, ChaosPlan)
    assert [(plan.faults, plan.seed) for plan in made] == [(10, 3), (10, 4), (5, 5)]


def test_a_table_has_a_row_per_kind_of_fault(outcome: ChaosOutcome) -> None:
    rows = table(outcome.results)
    assert {row[0] for row in rows} == {str(kind) for kind in outcome.plan.kinds or ()}
    assert all(row[1] == "1" for row in rows)


# Processes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_chaos_test_that_is_stopped_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    etcd_or_skip()
    command = [sys.executable, "-m", "logbrook.testing.chaos", "--faults", "1"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert wait_until(lambda: len(list(tmp_path.glob("*/broker-*.log"))) == 3, END_S_MAX)
            assert processes_of(tmp_path)
            process.send_signal(number)
            process.communicate(timeout=END_S_MAX)
        finally:
            process.kill()
    assert wait_until(lambda: not processes_of(tmp_path), END_S_MAX)
    assert wait_until(lambda: list(tmp_path.iterdir()) == [], END_S_MAX)
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of processes that use files in a directory."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name == str(os.getpid()):
            continue
        try:
            lines.append(path.read_bytes().decode(errors="replace").replace("\0", " "))
        except OSError:
            continue
    return [line for line in lines if str(directory) in line]
