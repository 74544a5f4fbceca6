"""Writing to the topic of reports, which is made when the first of them comes.

It is compacted, so of each pipeline the last report stays, and its segments are small, so that what is to be read to
find it stays little. Nothing is lost by writing a report twice.
"""

from time import time

from logbrook.client import BrokerError, Client
from logbrook.client.record_writer import partition_of
from logbrook.client.retrying import persist
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def write_report(client: Client, topic: str, pipeline: str, value: bytes | None) -> None:
    """The last word about a pipeline, None to forget it. Raises ClientError or ProtocolError."""
    count = _partition_count(client, topic)
    key = pipeline.encode()
    batch = build_batch([Record(key, value, (), round(time() * 1000))])
    # A topic that has just been made is not known to every broker at once.
    persist(lambda: client.produce(topic, partition_of(key, count), batch), client.timeout_s)


def _partition_count(client: Client, topic: str) -> int:
    def ask() -> int:
        return client.partition_count(topic)

    try:
        return persist(ask, client.timeout_s, final=_MISSING)
    except BrokerError as error:
        if error.code not in _MISSING:
            raise
    try:
        client.create_topic(topic, 1, _SETTINGS)
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return persist(ask, client.timeout_s)
