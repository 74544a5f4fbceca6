"""Batches are stored as they were compressed, and every client reads the batches of every other."""

from collections.abc import Callable

import pytest

from logbrook.client import Client as RawClient
from logbrook.model.identifiers import Offset
from logbrook.records.batch import CODEC_MASK, BatchHeader, Codec, read_header
from tests.interop.clients.interface import CODECS, Client, Outgoing, ProducerOptions
from tests.interop.conftest import NAMES, NewTopic

# All values are compressible: librdkafka does not compress a batch that would not get smaller.
_VALUES = [b"number %03d, and again " % number * 50 for number in range(100)]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_stored_as_they_were_compressed_and_every_client_reads_them(
    library: Client, get_client: Callable[[str], Client], servers: str, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic()
    _produce(library, servers, topic, codec)
    headers = _stored(servers, topic)
    assert {header.attributes & CODEC_MASK for header in headers} == {Codec[codec.upper()]}
    assert sum(header.count for header in headers) == len(_VALUES)
    if codec != "none":
        assert sum(header.size for header in headers) < sum(map(len, _VALUES)) / 2

    readers = [get_client(name) for name in NAMES]
    for reader in readers:
        if reader.why_not_codec(codec) is None:
            assert [record.value for record in reader.read_all(servers, topic)] == _VALUES, reader.name
    for reader in readers:
        _needs(reader, codec)


def _produce(client: Client, servers: str, topic: str, codec: str) -> None:
    _needs(client, codec)
    with client.producer(servers, ProducerOptions(codec=codec, linger_ms=20)) as producer:
        producer.deliver(*[Outgoing(topic, value) for value in _VALUES])


def _needs(client: Client, codec: str) -> None:
    """Skip the test if the client lacks the codec."""
    why_not = client.why_not_codec(codec)
    if why_not is not None:
        pytest.skip(f"{client.name} lacks {codec} here: {why_not}")


def _stored(servers: str, topic: str) -> list[BatchHeader]:
    with RawClient(servers) as raw:
        return [read_header(batch) for batch in raw.fetch(topic, 0, Offset(0)).batches]
