"""Who coordinates a group or a transactional id, and how far a group is.

A coordinator is looked up once. An error that may mean that it is another by now makes it be looked up again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

from logbrook.client.client import Address, Client
from logbrook.client.connection import Connection
from logbrook.client.errors import BrokerError, ClientError
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import UnsupportedVersionError
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_FIND_VERSION = 3
# The first that leaves out what a transaction may still commit (KIP-447), and the last that is about one group.
_OFFSETS_VERSION = 7
_STILL_THE_ONE = frozenset(ErrorCode) - {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class CoordinatorKind(IntEnum):
    """What is coordinated, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class CommittedOffset(NamedTuple):
    """How far a group is in a partition, and a word about it."""

    offset: int
    metadata: str = ""


class Coordinators:
    """Every call may raise ClientError or ProtocolError. Nothing is tried again here."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._known: dict[tuple[CoordinatorKind, str], Address] = {}

    @contextmanager
    def connection(self, kind: CoordinatorKind, key: str) -> Iterator[Connection]:
        """To the coordinator of `key`. What is raised while it is used is taken for its word."""
        try:
            yield self.client.connection(self._find(kind, key))
        except ClientError as error:
            if not isinstance(error, BrokerError) or error.code not in _STILL_THE_ONE:
                self._known.pop((kind, key), None)
            raise

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, everywhere. While a transaction is about to commit more, UNSTABLE_OFFSET_COMMIT
        is raised."""
        what = f"asking how far group {group_id!r} is"
        request = OffsetFetchRequest(group_id=group_id, topics=None, require_stable=True)
        found: dict[TopicPartition, CommittedOffset] = {}
        with self.connection(CoordinatorKind.GROUP, group_id) as connection:
            if (newest := connection.version_of(OffsetFetchRequest)) < _OFFSETS_VERSION:
                raise UnsupportedVersionError(OffsetFetchRequest.API_NAME, _OFFSETS_VERSION, 0, newest)
            answer = connection.request(request, OffsetFetchResponse, _OFFSETS_VERSION)
            check(answer.error_code, what)
            for topic in answer.topics:
                for one in topic.partitions:
                    check(one.error_code, f"{what} in {topic.name}-{one.partition_index}")
                    partition = TopicPartition(topic.name, one.partition_index)
                    found[partition] = CommittedOffset(one.committed_offset, one.metadata or "")
        return found

    def _find(self, kind: CoordinatorKind, key: str) -> Address:
        known = self._known.get((kind, key))
        if known is None:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            answer = self.client.request(request, FindCoordinatorResponse, _FIND_VERSION)
            check(answer.error_code, f"finding the coordinator of {kind.name.lower()} {key!r}", answer.error_message)
            known = self._known[kind, key] = (answer.host, answer.port)
        return known


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises BrokerError."""
    if code:
        raise BrokerError(code, what, message)
