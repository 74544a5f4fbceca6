"""Maintenance and verification on request over HTTP, of all partitions or of some."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from logbrook.server.maintenance import EVERYTHING, MaintenanceResult, MaintenanceWork
from logbrook.server.operations import Operations
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.verification import LogVerification
from tests.unit.server.http_kit import TIMEOUT_S, Answer, Served, connections, head, read_all, status_of


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        yield served


# Maintenance


def produce(served: Served, topic: str, values: list[str], partition: int = 0) -> None:
    """Produce each record in its own batch."""
    producer = Producer({"bootstrap.servers": served.bootstrap_servers, "batch.num.messages": 1})
    for value in values:
        producer.produce(topic, key="key", value=value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def damage(served: Served, topic: str, segment: int, position: int = 70) -> str:
    """Flip a byte of a segment. Returns the segment's path."""
    path = served.log(topic).segments[segment].path
    with (Path(served.config.data) / path).open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))
    return path


def test_maintenance_on_demand_removes_segments(served: Served) -> None:
    served.create_topic("orders", segment_bytes=1000, retention_bytes=3000, file_delete_delay_ms=0)
    produce(served, "orders", ["v" * 500] * 20)
    before = served.scrape()
    assert served.log("orders").size > 10_000

    answer = served.ask("/maintenance", "POST")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    done = json.loads(answer.text)
    assert done["errors"] == []
    assert done["segments_removed"] > 5
    assert done["bytes_removed"] > 5000
    assert done["files_unlinked"] >= done["segments_removed"]

    after = served.scrape()
    labels = {"topic": "orders", "partition": 0}
    segments = [page.value("logbrook_partition_segments", **labels) for page in (before, after)]
    assert segments[0] - segments[1] == done["segments_removed"]  # type: ignore[operator]
    assert after.value("logbrook_partition_size_bytes", **labels) == served.log("orders").size
    assert served.log("orders").size <= 4000
    assert (after.value("logbrook_partition_log_start_offset", **labels) or 0) > 0
    assert after.value("logbrook_storage_segments_removed_total") == done["segments_removed"]
    assert after.value("logbrook_storage_checkpoints_total") == 1
    files = [name for name in os.listdir(os.path.join(served.config.data, "orders-0")) if name.endswith(".log")]
    assert len(files) == after.value("logbrook_partition_segments", **labels)


def test_maintenance_on_demand_compacts(served: Served) -> None:
    served.create_topic("states", segment_bytes=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    produce(served, "states", [str(number) * 200 for number in range(30)])
    done = json.loads(served.ask("/maintenance", "POST").text)
    assert done["logs_compacted"] >= 1
    assert done["bytes_compacted"] > 0
    scraped = served.scrape()
    assert (scraped.value("logbrook_cleaner_compactions_total") or 0) >= 1
    read_bytes = scraped.value("logbrook_cleaner_read_bytes_total") or 0
    assert read_bytes - (scraped.value("logbrook_cleaner_written_bytes_total") or 0) == done["bytes_compacted"]
    labels = {"topic": "states", "partition": 0}
    assert 0 < (scraped.value("logbrook_partition_cleaned_offset", **labels) or 0) <= 30


def test_maintenance_of_some_partitions_leaves_the_others_alone(served: Served) -> None:
    for topic in ("orders", "orders-0", "payments"):
        served.create_topic(topic, 2, segment_bytes=1000, retention_bytes=1, file_delete_delay_ms=0)
        for partition in range(2):
            produce(served, topic, ["v" * 500] * 4, partition)

    def left() -> dict[str, list[int]]:
        return {
            topic: [len(served.log(topic, partition).segments) for partition in range(2)]
            for topic in ("orders", "orders-0", "payments")
        }

    before = left()
    answer = served.ask("/maintenance?partition=orders-0", "POST")
    assert (answer.status, json.loads(answer.text)["errors"]) == (200, [])
    # A partition of that name takes precedence over a topic.
    assert left() == before | {"orders": [1, before["orders"][1]]}
    assert served.ask("/maintenance?partition=payments&partition=orders-0-1&step=retention", "POST").status == 200
    assert left() == {"orders": [1, before["orders"][1]], "orders-0": [before["orders-0"][0], 1], "payments": [1, 1]}


def test_maintenance_of_one_step_does_not_do_the_other(served: Served) -> None:
    policy = "compact,delete"
    served.create_topic(
        "states", segment_bytes=1000, cleanup_policy=policy, retention_bytes=3000, min_cleanable_dirty_ratio=0.99
    )
    produce(served, "states", ["v" * 300] * 20)
    # The dirty ratio applies only to scheduled rounds.
    done = json.loads(served.ask("/maintenance?step=compaction&partition=states", "POST").text)
    assert (done["logs_compacted"], done["segments_removed"]) == (1, 0)
    produce(served, "states", ["v" * 300] * 20)
    done = json.loads(served.ask("/maintenance?step=retention&partition=states", "POST").text)
    assert (done["logs_compacted"], done["segments_removed"] > 0) == (0, True)


def test_the_segment_that_is_being_written_is_compacted_too_if_that_is_asked_for(served: Served) -> None:
    served.create_topic("states", cleanup_policy="compact")
    produce(served, "states", ["v" * 300] * 5)
    assert json.loads(served.ask("/maintenance?step=compaction", "POST").text)["logs_compacted"] == 0
    done = json.loads(served.ask("/maintenance?step=compaction&partition=states-0&active=true", "POST").text)
    assert done["logs_compacted"] == 1
    assert len(list(served.log("states").segments[0].batches())) == 1


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("partition=nothing", 404, "there is no partition or topic nothing here"),
        ("partition=", 404, "there is no partition or topic  here"),
        ("step=everything", 400, "step must be retention or compaction"),
        ("partitions=orders", 400, "unknown parameter partitions; use partition, step, active"),
        ("active=maybe", 400, "active must be true or false"),
        ("orders", 400, "malformed query string"),
        ("partition=%ff", 400, "malformed query string"),
    ],
)
def test_an_invalid_maintenance_request_is_refused(served: Served, query: str, status: int, message: str) -> None:
    answer = served.ask(f"/maintenance?{query}", "POST")
    assert (answer.status, json.loads(answer.text)) == (status, {"errors": [message]})


def test_a_failed_maintenance_of_a_partition_is_reported(served: Served) -> None:
    served.create_topic("states", segment_bytes=1000, cleanup_policy="compact")
    produce(served, "states", ["v" * 500] * 6)
    damage(served, "states", 1)
    answer = served.ask("/maintenance?step=compaction&partition=states", "POST")
    assert answer.status == 503
    (error,) = json.loads(answer.text)["errors"]
    assert error.startswith("states-0: states-0/")


@pytest.mark.parametrize("path", ["/maintenance", "/verify"])
def test_it_is_not_for_pages_in_a_browser(served: Served, path: str) -> None:
    assert served.ask(path, "POST", Origin="http://evil.example").status == 403


def test_failed_maintenance_reports_the_reason(served: Served) -> None:
    async def fail() -> None:
        failure = StorageOfflineError("sync", "wal/1", OSError("the disk is on fire"))
        served.broker.directory.environment.health.fail(failure)

    served.call(fail())
    answer = served.ask("/maintenance", "POST")
    assert answer.status == 503
    assert "the disk is on fire" in json.loads(answer.text)["errors"][0]


class Slow:
    """Maintenance whose rounds end only when permitted."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._run_once = served.broker.maintenance.run_once
        self._may_end = asyncio.Event()
        self.begun = asyncio.Event()
        self.rounds = 0
        served.broker.maintenance.run_once = self._round  # type: ignore[method-assign]

    def __enter__(self) -> "Slow":
        return self

    def __exit__(self, *_: object) -> None:
        self._served.call(self.let_end())

    async def let_end(self) -> None:
        self._may_end.set()

    async def _round(self, work: MaintenanceWork = EVERYTHING) -> MaintenanceResult:
        self.begun.set()
        await self._may_end.wait()
        self.rounds += 1
        return await self._run_once(work)


MAINTENANCE = head("POST /maintenance HTTP/1.1", "Host: x")


def test_maintenance_continues_after_a_disconnect_and_is_shared(served: Served) -> None:
    async def answering(count: int) -> None:
        while sum(connection._task is not None for connection in served.http.connections) < count:
            await asyncio.sleep(0)

    with Slow(served) as slow:
        with served.connect() as impatient:
            impatient.sendall(MAINTENANCE)
            served.call(slow.begun.wait())
        with served.connect() as patient, served.connect() as second:
            patient.sendall(MAINTENANCE)
            second.sendall(MAINTENANCE)
            served.call(answering(3))
            served.call(slow.let_end())
            assert status_of(read_all(patient)) == 200
            assert status_of(read_all(second)) == 200
        assert slow.rounds == 1


def test_a_stop_does_not_cut_maintenance_short(served: Served) -> None:
    async def stop() -> None:
        stopping = asyncio.get_running_loop().create_task(served.http.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        await slow.let_end()
        await stopping

    with Slow(served) as slow, served.connect() as client:
        client.sendall(MAINTENANCE)
        served.call(slow.begun.wait())
        served.call(stop())
        assert slow.rounds == 1


# Verification


def verified(answer: Answer) -> list[dict[str, Any]]:
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_every_log_is_read_and_counted(served: Served) -> None:
    served.create_topic("orders", 2, segment_bytes=1000)
    produce(served, "orders", ["v" * 500] * 6)
    *verdicts, end = verified(served.ask("/verify", "POST"))
    by_name = {(verdict["topic"], verdict["partition"]): verdict for verdict in verdicts}
    assert end == {"done": {"partitions": len(verdicts), "damaged": 0}}
    assert ("__cluster_metadata", 0) in by_name
    log = served.log("orders")
    assert by_name["orders", 0] == {
        "topic": "orders",
        "partition": 0,
        "segments": len(log.segments),
        "batches": 6,
        "records": 6,
        "bytes": log.size,
        "damage": None,
    }
    assert [verdict["topic"] for verdict in verified(served.ask("/verify?partition=orders-1", "POST"))[:-1]] == [
        "orders"
    ]


def test_damage_is_reported_with_its_position_and_quarantined(served: Served) -> None:
    for topic in ("orders", "payments"):
        served.create_topic(topic, segment_bytes=1000)
        produce(served, topic, ["v" * 500] * 6)
    path = damage(served, "orders", 2)
    for _ in range(2):
        bad, good, end = verified(served.ask("/verify?partition=orders&partition=payments", "POST"))
        assert end == {"done": {"partitions": 2, "damaged": 1}}
        assert good["damage"] is None
        assert (bad["damage"]["file"], bad["damage"]["position"]) == (path, 0)
        assert bad["damage"]["offset"] == served.log("orders").segments[2].base_offset
        assert "CRC32C" in bad["damage"]["reason"]
    assert served.scrape().value("logbrook_partition_quarantined", topic="orders", partition=0) == 1
    assert served.scrape().value("logbrook_partition_quarantined", topic="payments", partition=0) == 0


@pytest.mark.parametrize(("query", "status"), [("partition=nothing", 404), ("step=retention", 400)])
def test_an_invalid_verify_request_is_refused(served: Served, query: str, status: int) -> None:
    assert served.ask(f"/verify?{query}", "POST").status == status


def test_a_broker_that_stops_verifies_nothing(served: Served) -> None:
    served.broker.is_ready = False
    assert served.ask("/verify", "POST").status == 503


@dataclass
class Reading:
    """Log reads that proceed one at a time, when the test permits."""

    begun: threading.Semaphore
    may_read: threading.Semaphore
    pieces: int = 0

    def let_all(self) -> None:
        for _ in range(100):
            self.may_read.release()


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    reading = Reading(threading.Semaphore(0), threading.Semaphore(0))
    read = LogVerification.read

    def slow(check: LogVerification, bytes_max: int) -> bool:
        reading.begun.release()
        assert reading.may_read.acquire(timeout=TIMEOUT_S)
        reading.pieces += 1
        return read(check, 1)

    monkeypatch.setattr(LogVerification, "read", slow)
    monkeypatch.setattr("logbrook.server.operations._PROGRESS_S", 0.01)
    yield reading
    reading.let_all()


VERIFY = head("POST /verify?partition=orders HTTP/1.1", "Host: x")


async def verifications(served: Served, count: int) -> None:
    assert isinstance(served.http.handler, Operations)
    while len(served.http.handler._verifications) != count:
        await asyncio.sleep(0)


def test_progress_is_streamed_while_other_requests_are_served(served: Served, reading: Reading) -> None:
    served.create_topic("orders")
    produce(served, "orders", ["v" * 500] * 3)
    size = served.log("orders").size
    with served.connect() as client, client.makefile("rb") as answer:
        client.sendall(VERIFY)
        reading.may_read.release()
        assert reading.begun.acquire(timeout=TIMEOUT_S)
        assert reading.begun.acquire(timeout=TIMEOUT_S)
        heard = next(line for line in answer if b'"batches": 1' in line)
        message = {"topic": "orders", "partition": 0, "segments": 0, "batches": 1, "records": 1, "bytes": size // 3}
        assert json.loads(heard) == {"progress": message | {"bytes_total": size}}
        produce(served, "orders", ["later"])
        assert served.ask("/healthz").status == 200
        reading.let_all()
        rest = answer.read()
    assert b'"batches": 3, "records": 3' in rest
    assert b'{"done": {"partitions": 1, "damaged": 0}}' in rest


def test_it_ends_once_no_client_waits(served: Served, reading: Reading) -> None:
    served.create_topic("orders")
    produce(served, "orders", ["v" * 500] * 20)
    with served.connect() as client:
        client.sendall(VERIFY)
        assert reading.begun.acquire(timeout=TIMEOUT_S)
        served.call(verifications(served, 1))
    served.call(connections(served, 0))
    reading.let_all()
    served.call(verifications(served, 0))
    assert reading.pieces == 1


def test_a_stop_cuts_it_short_and_reports_it(served: Served, reading: Reading) -> None:
    served.create_topic("orders")
    produce(served, "orders", ["v" * 500] * 20)
    with served.connect() as client:
        client.sendall(VERIFY)
        assert reading.begun.acquire(timeout=TIMEOUT_S)
        stopping = asyncio.run_coroutine_threadsafe(served.http.handler.settle(), served._loop)
        reading.let_all()
        stopping.result(TIMEOUT_S)
        assert b'{"errors": ["the broker is starting or stopping"]}' in read_all(client)
    assert reading.pieces < 20


def test_a_topic_may_be_deleted_while_it_is_read(served: Served, reading: Reading) -> None:
    served.create_topic("orders")
    produce(served, "orders", ["v" * 500] * 3)
    with served.connect() as client:
        client.sendall(VERIFY)
        assert reading.begun.acquire(timeout=TIMEOUT_S)
        served.call(served.broker.services.topics.delete("orders"))
        reading.let_all()
        assert b'{"done": {"partitions": 0, "damaged": 0}}' in read_all(client)
