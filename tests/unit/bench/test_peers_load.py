"""The load for Kafka's protocol, in worker processes, against a real broker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers.load import Job, LoadError, messages, quantiles
from bench.peers.sendfile import measure_sendfile
from bench.peers.workers import Workers
from logbrook import Broker
from logbrook.client import Client
from logbrook.model.identifiers import Offset
from logbrook.records.batch import iter_headers
from logbrook.records.reader import iter_records
from logbrook.testing.processes import wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as workers:
        yield workers


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_produced_messages_are_stored_and_consumed(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "whole", partitions=3, size=100, codec="zstd", count=3_000)
    workers.call("kafka", "create", job)
    produced = workers.spend("kafka", "produce", [job, job])
    assert produced.messages == 6_000
    assert produced.ended_s > produced.started_s
    with Client(broker.bootstrap_servers) as client:
        offsets = [client.list_offset("whole", partition) for partition in range(3)]
    assert offsets == [2_000, 2_000, 2_000]
    whole = Job(broker.bootstrap_servers, "whole", partitions=3, size=100, count=6_000)
    assert workers.spend("kafka", "consume", [whole]).messages == 6_000
    workers.call("kafka", "delete", job)


def test_a_consumer_reads_a_topic_as_often_as_a_window_needs(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "passes", partitions=2, size=100, count=1_000)
    workers.call("kafka", "create", job)
    workers.call("kafka", "produce", job)
    assert workers.spend("kafka", "consume_passes", [replace(job, stored=1_000, count=2_600)]).messages == 3_000
    assert workers.spend("kafka", "consume_passes", [replace(job, stored=1_000, count=10)]).messages == 1_000


def test_every_consumer_of_a_fan_out_reads_everything(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "fan-out", size=100, count=1_000, stored=1_000, connections=4)
    workers.call("kafka", "create", job)
    workers.call("kafka", "produce", job)
    assert workers.spend("kafka", "fan_out", [job]).messages == 4_000


def test_each_small_request_is_one_record(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "small", size=100, count=500, connections=8, pid=os.getpid())
    workers.call("kafka", "create", job)
    spent = workers.spend("kafka", "small_requests", [job])
    assert spent.messages == 500
    # The broker is in this process.
    assert spent.server_cpu_s > 0
    with Client(broker.bootstrap_servers) as client:
        # Each connection has sent one request before, whose response is checked in full.
        assert client.list_offset("small", 0) == 508


def test_a_refused_small_request_raises_load_error(workers: Workers, broker: Broker) -> None:
    small = {"max.message.bytes": "50"}
    job = Job(broker.bootstrap_servers, "too-large", size=100, count=10, connections=2, pid=os.getpid(), settings=small)
    workers.call("kafka", "create", job)
    with pytest.raises(LoadError, match="error code 10"):
        workers.call("kafka", "small_requests", job)


def test_half_of_keyed_messages_supersede_the_others(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "keyed", size=100, count=1_000, settings={"cleanup.policy": "compact"})
    workers.call("kafka", "create", job)
    workers.call("kafka", "fill_keyed", job)
    workers.call("kafka", "set_topic_config", replace(job, settings={"min.compaction.lag.ms": "7"}))
    with Client(broker.bootstrap_servers) as client:
        assert client.list_offset("keyed", 0) == 1_000
        fetched = client.fetch("keyed", 0, Offset(0), bytes_max=1 << 20).records
    positions = [position for position, _ in iter_headers(fetched)]
    keys = [record.key for position in positions for record in iter_records(fetched, position, bytes_max=1 << 20)]
    assert (len(keys), len(set(keys))) == (1_000, 500)


def test_idle_groups_are_held_until_their_file_is_deleted(workers: Workers, broker: Broker, tmp_path: Path) -> None:
    job = Job(broker.bootstrap_servers, "idle", connections=3)
    workers.call("kafka", "create", job)
    ready = tmp_path / "ready"
    holding = workers.begin("kafka", "idle_groups", replace(job, settings={"ready": str(ready)}))
    assert wait_until(lambda: ready.exists() or holding.done(), 60)
    assert not holding.done()
    ready.unlink()
    assert holding.result(60) is None


def test_sendfile_sends_whole_files_and_counts_its_cpu_time(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two", tmp_path / "empty"]
    for number, path in enumerate(files):
        path.write_bytes(bytes((2 - number) * 1_500_000))
    sent = measure_sendfile(files, 0.05)
    assert sent.bytes > 0
    assert sent.took_s >= 0.05
    assert sent.cpu_s > 0


def test_every_sent_message_has_a_latency(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "paced", count=200, rate=1_000)
    workers.call("kafka", "create", job)
    latencies_ms = workers.call("kafka", "acknowledged", job)
    assert 0 < latencies_ms["p50"] <= latencies_ms["p99"] <= latencies_ms["p99.9"]
    with Client(broker.bootstrap_servers) as client:
        # One more message was sent before, to connect.
        assert client.list_offset("paced", 0) == 201


def test_a_stamped_message_measures_end_to_end_latency(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "stamped", count=200, rate=1_000)
    workers.call("kafka", "create", job)
    received = workers.begin("kafka", "receive_stamped", job)
    workers.call("kafka", "send_stamped", job)
    assert received.result()["p50"] > 0


def test_an_error_in_a_load_raises_load_error(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "twice")
    workers.call("kafka", "create", job)
    with pytest.raises(LoadError, match="TOPIC_ALREADY_EXISTS"):
        workers.call("kafka", "create", job)


@pytest.mark.parametrize("verb", ["produce", "acknowledged"])
def test_a_rejected_message_raises_load_error(workers: Workers, broker: Broker, verb: str) -> None:
    small = {"max.message.bytes": "500"}
    job = Job(broker.bootstrap_servers, f"refused-{verb}", size=1_000, count=10, rate=1_000, settings=small)
    workers.call("kafka", "create", job)
    with pytest.raises(LoadError, match="size too large"):
        workers.call("kafka", verb, job)


def test_in_turn_distributes_messages_round_robin(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "turns", partitions=4, size=100, in_turn=True, count=10)
    workers.call("kafka", "create", job)
    workers.call("kafka", "produce", job)
    with Client(broker.bootstrap_servers) as client:
        assert [client.list_offset("turns", partition) for partition in range(4)] == [3, 3, 2, 2]


def test_a_call_in_flight_can_be_cancelled(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "endless", count=1_000_000, rate=100)
    workers.call("kafka", "create", job)
    sending = workers.begin("kafka", "acknowledged", job)
    workers.cancel(sending)
    assert isinstance(sending.exception(), LoadError)


def test_messages_differ_and_have_their_size() -> None:
    for size in (100, 1_000, 10_000):
        assert {len(message) for message in messages(size)} == {size}
        assert len(set(messages(size))) == len(messages(size))


def test_quantiles_exclude_the_warm_up() -> None:
    latencies_ms = quantiles([100.0] * 20 + [1.0] * 80, took_s=2.0)
    assert (latencies_ms["p50"], latencies_ms["p99.9"], latencies_ms["rate"]) == (1.0, 1.0, 50.0)


def test_the_clients_of_redis_and_nats_are_optional() -> None:
    without = "import sys; sys.modules['redis'] = sys.modules['nats'] = None; import bench.peers.__main__"
    subprocess.run([sys.executable, "-c", without], cwd=ROOT, timeout=120, check=True)


def test_systems_and_measurements_are_chosen_by_name() -> None:
    chosen = subprocess.run(
        [sys.executable, "-m", "bench.peers", "--systems", "rabbit"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert chosen.returncode == 2
    assert "no rabbit; there are: logbrook, kafka, redis, nats" in chosen.stderr
