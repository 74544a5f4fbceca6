"""The load that Logbrook and Kafka share, in a process of its own, on a real broker."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.load import Job, LoadError, quantiles
from bench.peers.messages import messages
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


def test_what_is_produced_is_there_and_is_consumed(workers: Workers, broker: Broker) -> None:
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


def test_latencies_are_of_all_that_was_sent(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "paced", count=200, rate=1_000)
    workers.call("kafka", "create", job)
    found = workers.call("kafka", "acknowledged", job)
    assert 0 < found["p50"] <= found["p99"] <= found["p99.9"]
    with Client(broker.bootstrap_servers) as client:
        # One more was sent before, to be connected.
        assert client.list_offset("paced", 0) == 201


def test_a_message_says_how_long_it_was_under_way(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "stamped", count=200, rate=1_000)
    workers.call("kafka", "create", job)
    received = workers.begin("kafka", "receive_stamped", job)
    workers.call("kafka", "send_stamped", job)
    assert received.result()["p50"] > 0


def test_what_goes_wrong_in_a_load_is_told(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "twice")
    workers.call("kafka", "create", job)
    with pytest.raises(LoadError, match="TOPIC_ALREADY_EXISTS"):
        workers.call("kafka", "create", job)


@pytest.mark.parametrize("verb", ["produce", "acknowledged"])
def test_a_message_that_is_refused_is_told(workers: Workers, broker: Broker, verb: str) -> None:
    small = {"max.message.bytes": "500"}
    job = Job(broker.bootstrap_servers, f"refused-{verb}", size=1_000, count=10, rate=1_000, settings=small)
    workers.call("kafka", "create", job)
    with pytest.raises(LoadError, match="size too large"):
        workers.call("kafka", verb, job)


def test_a_message_to_another_partition_each_time(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "turns", partitions=4, size=100, in_turn=True, count=10)
    workers.call("kafka", "create", job)
    workers.call("kafka", "produce", job)
    with Client(broker.bootstrap_servers) as client:
        assert [client.list_offset("turns", partition) for partition in range(4)] == [3, 3, 2, 2]


def test_a_call_that_would_go_on_for_long_can_be_given_up(workers: Workers, broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "endless", count=1_000_000, rate=100)
    workers.call("kafka", "create", job)
    sending = workers.begin("kafka", "acknowledged", job)
    workers.give_up(sending)
    assert isinstance(sending.exception(), LoadError)


def test_messages_differ_and_have_their_size() -> None:
    for size in (100, 1_000, 10_000):
        assert {len(message) for message in messages(size)} == {size}
        assert len(set(messages(size))) == len(messages(size))


def test_the_warm_up_is_left_out_of_the_quantiles() -> None:
    found = quantiles([100.0] * 20 + [1.0] * 80, took_s=2.0)
    assert (found["p50"], found["p99.9"], found["rate"]) == (1.0, 1.0, 50.0)


def test_the_clients_of_others_need_not_be_installed() -> None:
    without = "import sys; sys.modules['redis'] = sys.modules['nats'] = None; import bench.peers.__main__"
    subprocess.run([sys.executable, "-c", without], cwd=ROOT, check=True)


def test_systems_and_measurements_are_chosen_by_name() -> None:
    chosen = subprocess.run(
        [sys.executable, "-m", "bench.peers", "--systems", "rabbit"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert chosen.returncode == 2
    assert "no rabbit; there are: logbrook, kafka, redis, nats" in chosen.stderr
