"""Small batches that decompress to large ones: the broker decompresses only where it must, with bounded memory.

A batch is opaque to the broker, so a decompression bomb is accepted. It is decompressed by a lookup by time and by
compaction. Consumers get it as it was sent. Compacted topics inspect batches when they are produced, and refuse it.
"""

import gzip
import time
from collections.abc import Callable
from functools import cache

import cramjam
import pytest

from logbrook.client import BrokerError, Client
from logbrook.client.admin_configs import ConfigAdmin
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.batch import HEADER_BYTES, BatchHeader, Codec
from logbrook.records.builder import build_batch, seal
from logbrook.records.record import Record, encode_varint
from tests.hostile.victim import MIB, Victim

FLAGS = ("--maintenance-interval-ms", "50", "--storage-decompressed-bytes-max", "32MiB")
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "0",
}
TIMESTAMP = 1_700_000_000_000
# Memory that the broker may use while it inspects a batch: a few times the maximum decompressed size.
PEAK_BYTES_MAX = 200 * MIB
# Compaction keeps its map, and the allocator freed memory.
GROWTH_BYTES_MAX = 128 * MIB
CPU_S_MAX = 5.0


@cache
def zeros_in(codec: Codec) -> bytes:
    """Return at most half a megabyte that decompresses to gigabytes, or declares so."""
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
    """Return a batch with this payload and a valid checksum and record count."""
    batch = bytearray(HEADER_BYTES) + payload
    header = BatchHeader(
        Offset(0),
        0,
        LeaderEpoch(-1),
        2,
        0,
        int(codec),
        count - 1,
        TIMESTAMP,
        TIMESTAMP,
        ProducerId(-1),
        ProducerEpoch(-1),
        -1,
        count,
    )
    seal(header, batch)
    return batch


@cache
def headers_in_one_record(count: int) -> bytes:
    """Return a compressed record with `count` empty headers: two bytes each, but an object each for its readers."""
    body = b"\x00\x00\x00" + encode_varint(1) + b"k" + encode_varint(-1) + encode_varint(count) + b"\x00\x01" * count
    return bytes(cramjam.zstd.compress(encode_varint(len(body)) + body, level=9))


BOMBS: dict[str, Callable[[], bytearray]] = {
    "gzip": lambda: sealed(Codec.GZIP, zeros_in(Codec.GZIP)),
    "snappy": lambda: sealed(Codec.SNAPPY, zeros_in(Codec.SNAPPY)),
    "lz4": lambda: sealed(Codec.LZ4, zeros_in(Codec.LZ4)),
    "zstd": lambda: sealed(Codec.ZSTD, zeros_in(Codec.ZSTD)),
    "garbage": lambda: sealed(Codec.ZSTD, b"\x28\xb5\x2f\xfd and this is no frame"),
    "cut-off": lambda: sealed(Codec.GZIP, zeros_in(Codec.GZIP)[:1000]),
    "headers": lambda: sealed(Codec.ZSTD, headers_in_one_record(4_000_000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_is_stored_and_returned_unchanged(victim: Victim, name: str) -> None:
    bomb = BOMBS[name]()
    topic = f"stored-{name}"
    with victim.peak_below(PEAK_BYTES_MAX), Client(victim.address) as client:
        client.create_topic(topic)
        assert client.produce(topic, 0, bomb) == 0
        (fetched,) = client.fetch(topic, 0, Offset(0)).batches
    assert fetched[16:] == bomb[16:]


@pytest.mark.parametrize("name", BOMBS)
def test_a_lookup_by_time_decompresses_a_bomb_and_uses_little_memory(victim: Victim, name: str) -> None:
    topic = f"timed-{name}"
    with victim.peak_below(PEAK_BYTES_MAX), Client(victim.address) as client:
        client.create_topic(topic)
        client.produce(topic, 0, BOMBS[name]())
        before_s = victim.cpu_s
        assert client.list_offset(topic, 0, TIMESTAMP - 1) == 0
        victim.check()
        assert victim.cpu_s - before_s < CPU_S_MAX, "others wait that long"


@pytest.mark.parametrize("names", [[name for name in BOMBS if name != "headers"], ["headers"]], ids=["all", "headers"])
def test_compaction_decompresses_a_bomb_and_uses_little_memory(victim: Victim, names: list[str]) -> None:
    """The partition stays online, and its valid records are compacted."""
    with victim.peak_below(PEAK_BYTES_MAX), Client(victim.address) as client:
        for topic in names:
            # A bomb is stored before the topic is compacted, and refused after that.
            client.create_topic(topic, 1, COMPACTED | {"cleanup.policy": "delete"})
            client.produce(topic, 0, build_batch([Record(key=b"a", value=b"old" * 500)]))
            client.produce(topic, 0, BOMBS[topic]())
            ConfigAdmin(client).alter_topic(topic, COMPACTED)
            for _ in range(2):
                client.produce(topic, 0, build_batch([Record(key=b"a", value=b"new" * 500)]))
        for topic in names:
            wait_for_compaction(client, topic)
            assert client.produce(topic, 0, build_batch([Record(key=b"b", value=b"more")])) == 4


@pytest.mark.parametrize("name", [name for name in BOMBS if name != "headers"])
def test_a_compacted_topic_decompresses_a_bomb_refuses_it_and_uses_little_memory(victim: Victim, name: str) -> None:
    topic = f"inspected-{name}"
    with victim.peak_below(PEAK_BYTES_MAX), Client(victim.address) as client:
        client.create_topic(topic, 1, COMPACTED)
        with pytest.raises(BrokerError) as refused:
            client.produce(topic, 0, BOMBS[name]())
        assert refused.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
        assert client.produce(topic, 0, build_batch([Record(key=b"a", value=b"good")])) == 0


def wait_for_compaction(client: Client, topic: str) -> None:
    """Wait until the first record, which has a newer one of its key, is removed. Each fetch waits for its timeout."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        fetched = client.fetch(topic, 0, Offset(0), bytes_max=1, min_bytes=10 * MIB, max_wait_ms=50)
        if not any(b"oldold" in bytes(batch) for batch in fetched.batches):
            return
    raise AssertionError("nothing was compacted within 60 s")
