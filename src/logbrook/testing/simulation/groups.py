"""Members of a consumer group in a simulation, and what must hold of their partitions and offsets.

A member joins, reads its partitions from the committed offsets on and commits where it is. Of what members were told
these must hold: a partition has one owner per generation, and an offset that was committed is never followed by a lower
one, whatever happens to the coordinator.
"""

from collections.abc import Awaitable, Callable
from random import Random

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from logbrook.testing.simulation.client import WorkloadClient

GROUP = "g"
_JOIN_GROUP, _SYNC_GROUP, _HEARTBEAT, _OFFSET_COMMIT, _OFFSET_FETCH = 5, 3, 3, 7, 5
_PROTOCOL_TYPE = "simulation"

# Reads a partition from an offset on, and returns the offset to continue at.
ReadPartition = Callable[[WorkloadClient, int, int], Awaitable[int]]


class GroupWorkloadHistory:
    """Everything that the members of the group were told."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        # The highest offset that was acknowledged as committed, by partition.
        self.committed: dict[int, int] = {}
        self._owners: dict[tuple[int, int], str] = {}

    def on_assigned(self, generation: int, partition: int, name: str) -> None:
        owner = self._owners.setdefault((generation, partition), name)
        assert owner == name, f"in generation {generation}, {owner} and {name} both own partition {partition}"

    def on_committed(self, partition: int, offset: int) -> None:
        self.committed[partition] = max(offset, self.committed.get(partition, 0))

    async def fetch_offsets(self, client: WorkloadClient, partitions: list[int]) -> dict[int, int] | None:
        """Return the committed offsets, 0 if there is none; None if the coordinator refuses. Raises OSError."""
        before = dict(self.committed)
        topics = [OffsetFetchRequestTopic(name=self.topic, partition_indexes=partitions)]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics)
        response = await client.request(request, OffsetFetchResponse, _OFFSET_FETCH)
        if response.error_code:
            return None
        offsets: dict[int, int] = {}
        for topic in response.topics:
            for data in topic.partitions:
                if data.error_code:
                    return None
                offset = offsets[data.partition_index] = max(0, data.committed_offset)
                least = before.get(data.partition_index, 0)
                assert offset >= least, (
                    f"offset {least} of partition {data.partition_index} was committed, and {offset} is told"
                )
        return offsets


class WorkloadMember:
    """One member. Call `run_one` again and again, with whatever connection there is."""

    def __init__(
        self,
        seed: int,
        name: str,
        history: GroupWorkloadHistory,
        partitions: int,
        read: ReadPartition,
        session_ms: int = 6_000,
    ) -> None:
        self._session_ms = session_ms
        # A rebalance waits for members that are gone.
        self._join_s_max = 3 * session_ms / 1000
        self.name = name
        self._random = Random(f"{seed}/{name}")
        self._history = history
        self._partitions = partitions
        self._read = read
        self._member_id = ""
        self._generation = -1
        # The next offset of each partition that it owns; None: to be joined.
        self.positions: dict[int, int] | None = None

    async def run_one(self, client: WorkloadClient) -> None:
        """Join, or read and commit one partition. Raises OSError."""
        if self.positions is None:
            await self._join(client)
        elif self.positions:
            await self._consume(client, self._random.choice(list(self.positions)))
        else:
            await self._beat(client)

    async def _join(self, client: WorkloadClient) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._session_ms,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name="modulo")],
        )
        joined = await client.request(request, JoinGroupResponse, _JOIN_GROUP, self._join_s_max)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        if joined.error_code:
            self._on_error(joined.error_code)
            return
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(member.member_id for member in joined.members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=bytes(range(number, self._partitions, len(members)))
                )
                for number, member_id in enumerate(members)
            ]
        synced = await client.request(
            SyncGroupRequest(
                group_id=GROUP, generation_id=self._generation, member_id=self._member_id, assignments=assignments
            ),
            SyncGroupResponse,
            _SYNC_GROUP,
            self._join_s_max,
        )
        if synced.error_code:
            self._on_error(synced.error_code)
            return
        partitions = list(synced.assignment)
        for partition in partitions:
            self._history.on_assigned(self._generation, partition, self.name)
        if partitions:
            self.positions = await self._history.fetch_offsets(client, partitions)
        else:
            self.positions = {}

    async def _consume(self, client: WorkloadClient, partition: int) -> None:
        assert self.positions is not None
        offset = await self._read(client, partition, self.positions[partition])
        # A commit counts as a heartbeat.
        partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._history.topic, partitions=partitions)],
        )
        response = await client.request(request, OffsetCommitResponse, _OFFSET_COMMIT)
        code = response.topics[0].partitions[0].error_code
        if code:
            self._on_error(code)
        else:
            self._history.on_committed(partition, offset)
            self.positions[partition] = offset

    async def _beat(self, client: WorkloadClient) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self._generation, member_id=self._member_id)
        self._on_error((await client.request(request, HeartbeatResponse, _HEARTBEAT)).error_code)

    def _on_error(self, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self.positions = None
