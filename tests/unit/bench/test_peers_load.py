"""The load for Kafka's protocol, in worker processes, against a real broker."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.load import Job, LoadError, messages, quantiles
from bench.peers.workers import Workers
from logbrook import Broker
from logbrook.client import Client

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
