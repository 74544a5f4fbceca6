"""Small batches that become large: the broker looks inside one only where it must, and takes little doing so.

A batch is opaque to the broker, so a bomb is let in. It goes off where someone looks inside: a lookup by time, and
compaction. Whoever reads the topic gets it as it was sent.
"""

import gzip
import time
from collections.abc import Callable
from functools import cache

import cramjam
import pytest

from logbrook.client import Client
from logbrook.records.batch import HEADER_BYTES, BatchHeader, Codec
from logbrook.records.builder import build_batch, seal
from logbrook.records.record import Record
from logbrook.records.varint import encode_varint
from tests.hostile.victim import MIB, Victim

FLAGS = ("--maintenance-interval-ms", "50", "--storage-decompressed-bytes-max", "32MiB")
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "0",
}
TIMESTAMP = 1_700_000_000_000
# What the broker may take for a moment while it looks inside a batch: a few times what a batch may become.
PEAK_BYTES_MAX = 200 * MIB
# Compaction keeps its map, and the allocator what it gave.
GROWTH_BYTES_MAX = 128 * MIB
SECONDS_MAX = 5.0


@cache
def zeros_in(codec: Codec) -> bytes:
    """Half a megabyte at most that decompresses to gigabytes, or that says so."""
    match codec:
        case Codec.GZIP:
            return gzip.compress(bytes(4 * MIB), 9) * 100
        case Codec.SNAPPY:
            return b"\x80\x80\x80\x80\x08\x00\x00"
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(bytes(4 * MIB))) * 20
        case _:
            return bytes(cramjam.zstd.compress(bytes(16 * MIB))) * 200


def sealed(codec: Codec, payload: bytes, count: int = 1) -> bytearray:
    """A batch with this payload, whose checksum and counts are right."""
    batch = bytearray(HEADER_BYTES) + payload
    header = BatchHeader(0, 0, -1, 2, 0, int(codec), count - 1, TIMESTAMP, TIMESTAMP, -1, -1, -1, count)
    seal(header, batch)
    return batch


@cache
def headers_in_one_record(count: int) -> bytes:
    """One record with so many empty headers, compressed: two bytes each, and an object each for who reads them."""
    body = b"\x00\x00\x00" + encode_varint(1) + b"k" + encode_varint(-1) + encode_varint(count) + b"\x00\x01" * count
    return bytes(cramjam.zstd.compress(encode_varint(len(body)) + body, level=9))


BOMBS: dict[str, Callable[[], bytearray]] = {
    "gzip": lambda: sealed(Codec.GZIP, zeros_in(Codec.GZIP)),
    "snappy": lambda: sealed(Codec.SNAPPY, zeros_in(Codec.SNAPPY)),
    "lz4": lambda: sealed(Codec.LZ4, zeros_in(Codec.LZ4)),
    "zstd": lambda: sealed(Codec.ZSTD, zeros_in(Codec.ZSTD)),
    "garbage": lambda: sealed(Codec.ZSTD, b"this is no frame"),
    "cut-off": lambda: sealed(Codec.GZIP, zeros_in(Codec.GZIP)[:1000]),
    "headers": lambda: sealed(Codec.ZSTD, headers_in_one_record(4_000_000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stored_and_given_as_it_was_sent(victim: Victim, name: str) -> None:
    bomb = BOMBS[name]()
    topic = f"stored-{name}"
    with victim.peak_below(PEAK_BYTES_MAX), Client(victim.address) as client:
        client.create_topic(topic)
        assert client.produce(topic, 0, bomb) == 0
        (fetched,) = client.fetch(topic, 0, 0).batches
    assert fetched[16:] == bomb[16:]


@pytest.mark.parametrize("name", BOMBS)
def test_a_lookup_by_time_looks_into_a_bomb_and_takes_little(victim: Victim, name: str) -> None:
    topic = f"timed-{name}"
    with victim.peak_below(PEAK_BYTES_MAX), Client(victim.address) as client:
        client.create_topic(topic)
        client.produce(topic, 0, BOMBS[name]())
        before_s = time.monotonic()
        assert client.list_offset(topic, 0, TIMESTAMP - 1) == 0
        victim.check()
        assert time.monotonic() - before_s < SECONDS_MAX, "others wait that long"


@pytest.mark.parametrize("names", [[name for name in BOMBS if name != "headers"], ["headers"]], ids=["all", "headers"])
def test_compaction_looks_into_a_bomb_and_takes_little(victim: Victim, names: list[str]) -> None:
    """The partition lives on, and what is good in it is compacted."""
    with victim.peak_below(PEAK_BYTES_MAX), Client(victim.address) as client:
        for topic in names:
            client.create_topic(topic, 1, COMPACTED)
            client.produce(topic, 0, build_batch([Record(key=b"a", value=b"old" * 500)]))
            client.produce(topic, 0, BOMBS[topic]())
            for _ in range(2):
                client.produce(topic, 0, build_batch([Record(key=b"a", value=b"new" * 500)]))
        for topic in names:
            wait_for_compaction(client, topic)
            assert client.produce(topic, 0, build_batch([Record(key=b"b", value=b"more")])) == 4


def wait_for_compaction(client: Client, topic: str) -> None:
    """Until the first record, of which there is a newer one, is gone. Each fetch takes its time."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        fetched = client.fetch(topic, 0, 0, bytes_max=1, min_bytes=10 * MIB, max_wait_ms=50)
        if not any(b"oldold" in bytes(batch) for batch in fetched.batches):
            return
    raise AssertionError("nothing was compacted within 20 s")
