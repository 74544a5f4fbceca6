"""An administrator in a simulation, who creates, grows and deletes topics, and what must hold of them.

A topic whose creation was acknowledged exists until its deletion is begun, with the partitions that were acknowledged.
One whose deletion was acknowledged is gone. If an answer is lost the outcome is unknown, and the request is repeated. A
creation that was sent twice may take effect after the deletion: the first request may arrive late.
"""

from collections import Counter
from collections.abc import Mapping
from enum import Enum, auto

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from logbrook.testing.simulation.client import WorkloadClient

_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS = 5, 5, 3
_PARTITIONS_BEFORE, _PARTITIONS_AFTER = 1, 2
_TIMEOUT_MS = 3_000
_PREFIX = "administered-"


class _TopicState(Enum):
    CREATING = auto()
    EXISTS = auto()
    GROWN = auto()
    DELETING = auto()
    DELETED = auto()


class AdminWorkload:
    """One administrator. Call `run_one` again and again, with whatever connection there is."""

    def __init__(self, replication_factor: int) -> None:
        self._replication_factor = replication_factor
        self._states: dict[str, _TopicState] = {}
        self._creations: Counter[str] = Counter()

    async def run_one(self, client: WorkloadClient) -> None:
        """Create a topic, or grow or delete an earlier one. Raises OSError."""
        name = next((name for name, state in self._states.items() if state is not _TopicState.DELETED), None)
        if name is None:
            name = f"{_PREFIX}{len(self._states)}"
            self._states[name] = _TopicState.CREATING
        if self._states[name] is _TopicState.CREATING:
            await self._create(client, name)
        elif self._states[name] is _TopicState.EXISTS:
            await self._grow(client, name)
        else:
            await self._delete(client, name)

    async def _create(self, client: WorkloadClient, name: str) -> None:
        self._creations[name] += 1
        topic = CreatableTopic(
            name=name, num_partitions=_PARTITIONS_BEFORE, replication_factor=self._replication_factor
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        response = await client.request(request, CreateTopicsResponse, _CREATE_TOPICS)
        if response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._states[name] = _TopicState.EXISTS

    async def _grow(self, client: WorkloadClient, name: str) -> None:
        topic = CreatePartitionsTopic(name=name, count=_PARTITIONS_AFTER, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        response = await client.request(request, CreatePartitionsResponse, _CREATE_PARTITIONS)
        # A request whose answer was lost may have taken effect.
        if response.results[0].error_code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
            self._states[name] = _TopicState.GROWN

    async def _delete(self, client: WorkloadClient, name: str) -> None:
        was_known = self._states[name] is _TopicState.GROWN
        self._states[name] = _TopicState.DELETING
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS)
        response = await client.request(request, DeleteTopicsResponse, _DELETE_TOPICS)
        code = response.responses[0].error_code
        if code == ErrorCode.NONE or (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not was_known):
            self._states[name] = _TopicState.DELETED

    def check(self, partition_counts: Mapping[str, int]) -> None:
        """Compare with the topics that exist at the end, and their numbers of partitions."""
        for name, state in self._states.items():
            count = partition_counts.get(name, 0)
            if state is _TopicState.EXISTS:
                assert count, f"topic {name} was created, and is gone"
            elif state is _TopicState.GROWN:
                assert count == _PARTITIONS_AFTER, f"topic {name} has {count} of {_PARTITIONS_AFTER} partitions"
            elif state is _TopicState.DELETED and self._creations[name] == 1:
                assert not count, f"topic {name} was deleted, and exists"
