"""Fetch: start position, size, records left out, and waiting."""

import socket
import struct
from contextlib import closing
from typing import Any

import pytest

from logbrook.client import Client
from logbrook.client.transactional import TransactionalProducer
from logbrook.model.identifiers import Offset
from logbrook.protocol.json_frames import RequestType
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from logbrook.records.batch import HEADER_BYTES, Codec, renew_crc
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import MemoryFiles
from tests.unit.server.json.json_kit import JSON_NETWORK, JsonPeer, json_peer, json_shell, values_of
from tests.unit.server.shell_kit import KIB, Shell, produce_request, request_frame
from tests.unit.server.shell_kit import PRODUCE_VERSION as VERSION

LONG_MS = 600_000
# The last version that identifies topics by name.
DELETE_TOPICS_VERSION = 5


def append(shell: Shell, topic: str, batch: bytearray) -> None:
    """Append a batch through Kafka's protocol."""
    before = shell.log(topic).high_watermark
    with shell.connect() as client:
        client.sendall(request_frame(produce_request(topic, batch), VERSION))
        shell.until(lambda: shell.log(topic).high_watermark > before)


def batch(*values: str, **how: Any) -> bytearray:
    return build_batch([Record(value=value.encode(), timestamp=1_000) for value in values], **how)


# Start position


def test_a_fetch_returns_records_and_the_next_offset(peer: JsonPeer, topic: str) -> None:
    peer.produce(topic, "a", "b", "c")
    answer = peer.fetch(topic, 1)
    assert [(record["offset"], record["key"], record["value"]) for record in answer["records"]] == [
        (1, None, "b"),
        (2, None, "c"),
    ]
    del answer["records"]
    assert answer == {
        "topic": topic,
        "partition": 0,
        "next_offset": 3,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_start_offset": 0,
    }
    again = peer.fetch(topic, 3)
    assert (again["records"], again["next_offset"]) == ([], 3)


def test_earliest_and_latest_are_where_the_log_begins_and_ends(shell: Shell, peer: JsonPeer, topic: str) -> None:
    peer.produce(topic, "a", "b", "c")
    shell.call(lambda: shell.log(topic).delete_before(Offset(1)))
    assert values_of(peer.fetch(topic, "earliest")) == ["b", "c"]
    assert peer.fetch(topic, "latest")["next_offset"] == 3


def test_without_an_offset_it_begins_where_the_group_has_committed(peer: JsonPeer, topic: str) -> None:
    peer.produce(topic, "a", "b", "c")
    of = {"topic": topic, "partition": 0}
    group = f"of-{topic}"
    assert values_of(peer.ask(RequestType.FETCH, **of, group_id=group)) == ["a", "b", "c"]
    peer.ask(RequestType.OFFSET_COMMIT, **of, group=group, offset=2)
    assert values_of(peer.ask(RequestType.FETCH, **of, group_id=group)) == ["c"]


def test_an_offset_outside_the_log_is_refused_with_its_bounds(shell: Shell, peer: JsonPeer, topic: str) -> None:
    peer.produce(topic, "a", "b", "c")
    shell.call(lambda: shell.log(topic).delete_before(Offset(1)))
    for offset in (0, 4):
        refused = peer.refused(RequestType.FETCH, topic=topic, partition=0, offset=offset)
        assert (refused["error"], refused["log_start_offset"], refused["log_end_offset"]) == ("OffsetOutOfRange", 1, 3)
    assert values_of(peer.fetch(topic, 1)) == ["b", "c"]


@pytest.mark.parametrize(
    ("place", "error"), [({"topic": "nowhere"}, "TopicNotFound"), ({"partition": 5}, "PartitionNotFound")]
)
def test_unknown_topics_and_partitions_are_refused(
    peer: JsonPeer, topic: str, place: dict[str, Any], error: str
) -> None:
    wanted = {"topic": topic, "partition": 0, "offset": 0, **place}
    assert peer.refused(RequestType.FETCH, **wanted)["error"] == error


# Size


def test_a_response_is_bounded_and_the_next_continues_within_the_batch(peer: JsonPeer, topic: str) -> None:
    peer.produce(topic, *[f"{number}" * KIB for number in range(9)])
    offset, sizes = 0, []
    while True:
        answer = peer.fetch(topic, offset, max_bytes=3 * KIB)
        if not answer["records"]:
            break
        assert [record["offset"] for record in answer["records"]] == list(range(offset, answer["next_offset"]))
        sizes.append(len(answer["records"]))
        offset = answer["next_offset"]
    assert sizes == [2, 2, 2, 2, 1]


def test_one_record_is_given_however_large_it_is(peer: JsonPeer, topic: str) -> None:
    peer.produce(topic, "x" * 100 * KIB, "y")
    assert values_of(peer.fetch(topic, 0, max_bytes=0)) == ["x" * 100 * KIB]


def test_a_compressed_batch_that_is_large_inside_is_given_in_small_answers(
    shell: Shell, peer: JsonPeer, topic: str
) -> None:
    values = ["x" * KIB] * 2_000
    append(shell, topic, batch(*values, codec=Codec.ZSTD))
    answer = peer.fetch(topic, 1_500, max_bytes=64 * KIB)
    assert (answer["records"][0]["offset"], 40 < len(answer["records"]) < 64) == (1_500, True)


# Records


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_decompressed(shell: Shell, peer: JsonPeer, topic: str, codec: Codec) -> None:
    append(shell, topic, batch("a", "ü" * 1000, codec=codec))
    assert values_of(peer.fetch(topic)) == ["a", "ü" * 1000]


def test_bytes_are_carried_safely(peer: JsonPeer, topic: str) -> None:
    records = [{"key_base64": "AP8=", "value_base64": "gA==", "headers": [{"key": "h", "value_base64": "/w=="}]}]
    peer.ask(RequestType.PRODUCE, topic=topic, partition=0, records=records)
    (record,) = peer.fetch(topic)["records"]
    assert {name: record[name] for name in records[0]} == records[0]
    peer.produce(topic, "text")
    assert peer.fetch(topic, 1, encoding="base64")["records"][0]["value_base64"] == "dGV4dA=="


def test_readers_of_committed_records_are_shown_no_others(shell: Shell, peer: JsonPeer, topic: str) -> None:
    host, port = shell.address
    with closing(Client(f"{host}:{port}")) as client, TransactionalProducer(client, f"of-{topic}") as producer:

        def send(value: str) -> None:
            identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
            sequence = producer.next_sequence(topic, 0)
            producer.send(topic, 0, batch(value, transactional=True, base_sequence=sequence, **identity))
            producer.flush()

        producer.begin()
        send("aborted 0")
        # A record of another producer between those of the transaction.
        peer.produce(topic, "plain 1")
        send("aborted 2")
        producer.abort()
        producer.begin()
        send("committed 4")
        producer.commit()
        producer.begin()
        send("open 6")
        peer.produce(topic, "plain 7")
        committed = peer.fetch(topic)
        assert values_of(committed) == ["plain 1", "committed 4"]
        assert (committed["next_offset"], committed["last_stable_offset"], committed["high_watermark"]) == (6, 6, 8)
        everything = values_of(peer.fetch(topic, isolation="read_uncommitted"))
        assert everything == ["aborted 0", "plain 1", "aborted 2", "committed 4", "open 6", "plain 7"]
        assert peer.fetch(topic, "latest")["next_offset"] == 6
        peer.send(RequestType.FETCH, topic=topic, partition=0, offset=6, max_wait_ms=LONG_MS)
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        producer.commit()
        assert values_of(peer.receive().fields) == ["open 6", "plain 7"]
    # The last record is followed by a marker, which is not returned and does not end the wait.
    end = peer.fetch(topic, 8)
    assert (end["records"], end["next_offset"]) == ([], 9)


def test_damaged_records_are_reported_after_the_records_before_them_are_returned(peer: JsonPeer, shell: Shell) -> None:
    topic = shell.create("bad", settings={"max.message.bytes": "100000"})
    append(shell, topic, batch("good"))
    broken = batch("x" * 50)
    # Its checksum is valid, but its records are not: the broker accepts that from a Kafka client.
    broken[HEADER_BYTES + 3 : HEADER_BYTES + 6] = b"\xff\xff\xff"
    renew_crc(memoryview(broken), 0, len(broken))
    append(shell, topic, broken)
    answer = peer.fetch(topic)
    assert (values_of(answer), answer["next_offset"]) == (["good"], 1)
    refused = peer.refused(RequestType.FETCH, topic=topic, partition=0, offset=1)
    assert (refused["error"], refused["retriable"]) == ("CorruptedData", False)
    assert peer.ask(RequestType.PING) == {"pong": True}


def test_bits_that_went_bad_on_the_disk_are_not_given() -> None:
    files = MemoryFiles()
    with Shell({"network": JSON_NETWORK}, files=files) as shell, json_peer(shell) as peer:
        shell.create("t")
        peer.produce("t", "value")
        path = shell.log("t").active.path

        def flip() -> None:
            file = files.open(path)
            size = file.size()
            file.pwrite(b"?", size - 3)
            file.close()

        shell.call(flip)
        assert peer.refused(RequestType.FETCH, topic="t", partition=0, offset=0)["error"] == "CorruptedData"


# Waiting


def test_a_fetch_waits_for_records(shell: Shell, peer: JsonPeer, topic: str) -> None:
    peer.send(RequestType.FETCH, topic=topic, partition=0, offset=0, max_wait_ms=LONG_MS)
    shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
    with json_peer(shell) as producer:
        producer.produce(topic, "new")
    assert values_of(peer.receive().fields) == ["new"]
    shell.until(lambda: len(shell.services.fetch_purgatory) == 0)


def test_a_fetch_is_answered_with_nothing_when_its_time_is_up(peer: JsonPeer, topic: str) -> None:
    assert peer.fetch(topic, 0, max_wait_ms=20)["records"] == []


def test_a_wait_ends_with_its_client(shell: Shell, topic: str) -> None:
    with json_peer(shell) as peer:
        peer.send(RequestType.FETCH, topic=topic, partition=0, offset=0, max_wait_ms=LONG_MS)
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        # A crash that the kernel signals with a reset.
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    shell.until(lambda: len(shell.services.fetch_purgatory) == 0)


def test_a_wait_ends_soon_after_its_client_has_closed_its_side(
    shell: Shell, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logbrook.server.json.connection._LAST_RESPONSES_S", 0.05)
    with json_peer(shell) as peer:
        peer.send(RequestType.FETCH, topic=topic, partition=0, offset=0, max_wait_ms=LONG_MS)
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
    shell.until(lambda: len(shell.services.fetch_purgatory) == 0)


def test_a_stop_answers_waiting_fetches() -> None:
    with json_shell() as shell, json_peer(shell) as peer:
        shell.create("t")
        peer.send(RequestType.FETCH, topic="t", partition=0, offset=0, max_wait_ms=LONG_MS)
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        stopping = shell.begin_stop()
        assert peer.receive().fields["records"] == []
        stopping.result(20)


def test_a_topic_that_is_deleted_is_no_longer_waited_for(shell: Shell, peer: JsonPeer, topic: str) -> None:
    peer.send(RequestType.FETCH, topic=topic, partition=0, offset=0, max_wait_ms=LONG_MS)
    shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
    with closing(shell.client()) as client:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000)
        client.request(request, DeleteTopicsResponse, DELETE_TOPICS_VERSION)
    assert peer.receive().fields["error"] == "PartitionNotFound"
