"""Coordinators of groups and transactions: lookup with a cache, and the offsets that groups have committed.

A coordinator's address is looked up once (FindCoordinator). It is dropped from the cache when the coordinator answers
NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, and when the connection to it is lost. Nothing is retried here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

from logbrook.client.client import Address, Client, group_by_topic
from logbrook.client.connection import Connection
from logbrook.client.errors import ClientError, check_code
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.errors import UnsupportedVersionError
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

NO_GENERATION = -1

# The last version with a single key.
_FIND_VERSION = 3
# The last version that identifies topics by name.
_COMMIT_VERSION_MAX = 9
# The first version with `require_stable` (KIP-447), and the last that is about one group.
_FETCH_VERSION = 7


class CoordinatorKind(IntEnum):
    """Kafka's CoordinatorType, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, and a text that the committer chose."""

    offset: Offset
    metadata: str = ""


class Coordinators:
    """The coordinators that one client talks to. Every call may raise ClientError or ProtocolError."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._addresses: dict[tuple[CoordinatorKind, str], Address] = {}

    @contextmanager
    def connection(self, kind: CoordinatorKind, key: str) -> Iterator[Connection]:
        """Yield a connection to the coordinator of `key`, a group id or a transactional id.

        An error with `needs_coordinator_refresh` that is raised inside the block drops the cached address.
        """
        try:
            yield self._client.connection(self._find(kind, key))
        except ClientError as error:
            if error.needs_coordinator_refresh:
                self._addresses.pop((kind, key), None)
            raise

    def committed(self, group_id: str, *, require_stable: bool = True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all offsets that a group has committed.

        With `require_stable`, an offset that an open transaction may still change is UNSTABLE_OFFSET_COMMIT, and a
        broker that cannot tell is UnsupportedVersionError. Without it, partitions with errors are left out.
        """
        operation = f"fetching the committed offsets of group {group_id!r}"
        request = OffsetFetchRequest(group_id=group_id, topics=None, require_stable=require_stable)
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        with self.connection(CoordinatorKind.GROUP, group_id) as connection:
            version = min(connection.version_of(OffsetFetchRequest), _FETCH_VERSION)
            if require_stable and version < _FETCH_VERSION:
                raise UnsupportedVersionError(OffsetFetchRequest.API_NAME, _FETCH_VERSION, 0, version)
            response = connection.request(request, OffsetFetchResponse, version)
            check_code(response.error_code, operation)
            for topic in response.topics:
                for partition in topic.partitions:
                    if require_stable:
                        check_code(partition.error_code, f"{operation} in {topic.name}-{partition.partition_index}")
                    if not partition.error_code and partition.committed_offset >= 0:
                        committed = OffsetAndMetadata(Offset(partition.committed_offset), partition.metadata or "")
                        offsets[TopicPartition(topic.name, partition.partition_index)] = committed
        return offsets

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str = "",
        generation_id: int = NO_GENERATION,
    ) -> None:
        """Commit offsets for a member of a generation, or, by default, for a group without members."""
        entries = [
            OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=""
            )
            for partition, offset in offsets.items()
        ]
        by_topic = group_by_topic(zip(offsets, entries, strict=True))
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in by_topic.items()],
        )
        with self.connection(CoordinatorKind.GROUP, group_id) as connection:
            version = min(connection.version_of(OffsetCommitRequest), _COMMIT_VERSION_MAX)
            for topic in connection.request(request, OffsetCommitResponse, version).topics:
                for partition in topic.partitions:
                    operation = f"committing for group {group_id} to {topic.name}-{partition.partition_index}"
                    check_code(partition.error_code, operation)

    def _find(self, kind: CoordinatorKind, key: str) -> Address:
        address = self._addresses.get((kind, key))
        if address is None:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            response = self._client.request(request, FindCoordinatorResponse, _FIND_VERSION)
            operation = f"finding the coordinator of {kind.name.lower()} {key!r}"
            check_code(response.error_code, operation, response.error_message)
            address = self._addresses[kind, key] = (response.host, response.port)
        return address
