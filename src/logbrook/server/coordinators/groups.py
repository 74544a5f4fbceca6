"""Service of the group coordinator: requests of handlers, mapped to the shards of `__consumer_offsets`.

Replies, also to reads, are released when the records they depend on are committed. While a shard loads, requests get
CoordinatorLoadingError, with Kafka's two exceptions for old clients, which treat that error as fatal there: a heartbeat
succeeds, and a SyncGroup gets REBALANCE_IN_PROGRESS.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from logbrook.config import GroupConfig, OffsetStore
from logbrook.core.coordinator import CoordinatorError, ProducerIdentity
from logbrook.core.groups.errors import GroupError, RebalanceInProgressError
from logbrook.core.groups.messages import (
    CommitRequest,
    FetchedOffset,
    GroupDescription,
    GroupListing,
    GroupOutcome,
    GroupReply,
    GroupWrite,
    JoinRequest,
    LeavingMember,
    MemberLeft,
    SyncRequest,
)
from logbrook.core.groups.shard import GroupCoordinatorShard, check_group_id
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.ports import Clock, Random
from logbrook.records.fields import STRING_BYTES_MAX
from logbrook.server.coordinators.context import CoordinatorContext
from logbrook.server.coordinators.internal_topic import InternalTopic
from logbrook.server.coordinators.runtime import CoordinatorRuntime
from logbrook.server.log_appender import LogAppender
from logbrook.server.topics import CONSUMER_OFFSETS, Topics

_logger = event_logger(__name__)

GroupContext: TypeAlias = CoordinatorContext[GroupCoordinatorShard]
PartitionErrors: TypeAlias = dict[TopicPartition, GroupError]


class GroupCoordinatorService:
    """One per broker, on the event loop."""

    def __init__(
        self,
        config: GroupConfig,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        appender: LogAppender,
        clock: Clock,
        random: Random,
    ) -> None:
        self._topics = topics
        self._is_in_memory = config.offsets is OffsetStore.MEMORY
        self.runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            InternalTopic(topics, CONSUMER_OFFSETS, config.offsets_partitions),
            appender,
            clock,
            loop,
            lambda: GroupCoordinatorShard(config, random, lambda: len(self.runtime), self.count_bytes),
            self._carry_out,
            self._delete_offsets_of_missing_topics,
            decompressed_bytes_max=topics.directory.environment.config.decompressed_bytes_max,
            is_in_memory=self._is_in_memory,
        )

    def stop(self) -> None:
        self.runtime.stop()

    # Membership

    def join(self, request: JoinRequest) -> "asyncio.Future[Any]":
        """Return the future JoinResult. Raises CoordinatorError, as does the future."""
        context = self._context(request.group_id)
        return self._ask(context, lambda reply_to, now_ms: context.shard.join(request, reply_to, now_ms))

    def sync(self, request: SyncRequest) -> "asyncio.Future[Any]":
        """Return the future SyncResult. Raises CoordinatorError, as does the future."""
        check_group_id(request.group_id)
        if self.runtime.is_loading(request.group_id):
            raise RebalanceInProgressError(request.group_id)
        context = self.runtime.context_for(request.group_id)
        return self._ask(context, lambda reply_to, now_ms: context.shard.sync(request, reply_to, now_ms))

    def heartbeat(self, group_id: str, generation: int, member_id: str, group_instance_id: str | None) -> None:
        """Raises CoordinatorError."""
        check_group_id(group_id)
        if not self.runtime.is_loading(group_id):
            context = self.runtime.context_for(group_id)
            context.shard.heartbeat(group_id, generation, member_id, group_instance_id, self.runtime.now_ms)

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> "asyncio.Future[list[MemberLeft]]":
        """Remove members. Raises CoordinatorError, as does the future."""
        context = self._context(group_id)
        results, outcome = context.shard.leave(group_id, members, self.runtime.now_ms)
        self._carry_out(context, outcome)
        return self._released(context, results)

    # Offsets

    def commit(self, request: CommitRequest) -> "asyncio.Future[PartitionErrors]":
        """Commit offsets. The future has the partitions that were rejected. Raises CoordinatorError, as it does."""
        context = self._context(request.group_id, may_be_empty=True)
        decision = context.shard.commit_offsets(request, self.runtime.now_ms)
        producer = ProducerIdentity(request.producer_id, request.producer_epoch) if request.transactional else None
        self.runtime.append(context, request.group_id, decision.write.records, producer)
        return self._released(context, decision.errors)

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the offsets as of all commits so far, `NO_OFFSET` for none; of all partitions if None.

        An offset may be shown to a client when the `pending_commits` of the group are done. Raises CoordinatorError.
        """
        return self._context(group_id, may_be_empty=True).shard.fetch_offsets(group_id, partitions)

    def unstable_partitions(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions whose offset an open transaction may change (KIP-447). Raises CoordinatorError."""
        return self._context(group_id, may_be_empty=True).shard.unstable_partitions(group_id)

    def pending_commits(self, group_ids: Collection[str]) -> "list[asyncio.Future[None]]":
        """Return futures that are done when all records so far of these groups are committed; none if they are.

        They raise CoordinatorNotAvailableError. Call it in the same step as the read it is for: a shard that is
        unloaded later fails these futures, but has none. Groups whose shard is not active are ignored: their reads
        have failed.
        """
        contexts = self._active_contexts_of(group_ids)
        return [self.runtime.committed(context) for context in contexts if context.in_flight]

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition]) -> "asyncio.Future[PartitionErrors]":
        """Delete offsets. The future has the partitions that were rejected. Raises CoordinatorError, as it does."""
        context = self._context(group_id)
        deletion = context.shard.delete_offsets(group_id, partitions)
        self.runtime.append(context, group_id, deletion.write.records)
        return self._released(context, deletion.errors)

    def delete_topic_offsets(self, topics: Collection[str]) -> None:
        """Delete the offsets of deleted topics in all active shards. Others do it when they are loaded."""
        for context in list(self.runtime.active_contexts()):
            self._delete_topic_offsets(context, topics)

    # Groups

    def delete_group(self, group_id: str) -> "asyncio.Future[None]":
        """Delete a group. Raises CoordinatorError, as does the future."""
        context = self._context(group_id, may_be_empty=True)
        self.runtime.append(context, group_id, context.shard.delete_group(group_id).records)
        return self._released(context, None)

    def list_groups(self, states: Collection[str] = ()) -> list[GroupListing]:
        """Return the groups of all shards. Raises CoordinatorLoadingError."""
        return [group for context in self.runtime.contexts() for group in context.shard.list_groups(states)]

    def describe(self, group_id: str) -> GroupDescription:
        """Raises CoordinatorError."""
        return self._context(group_id, may_be_empty=True).shard.describe(group_id)

    # Transactions

    async def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition of the group's offsets, creating the topic if necessary. Raises LogbrookError."""
        if not self._is_in_memory:
            await self.runtime.topic.create()
        return TopicPartition(CONSUMER_OFFSETS, self.runtime.topic.partition_for(group_id))

    def count_bytes(self) -> int:
        """Return the memory of all groups in active shards, in bytes."""
        return sum(context.shard.state_bytes for context in self.runtime.active_contexts())

    def _context(self, group_id: str, *, may_be_empty: bool = False) -> GroupContext:
        """Raises CoordinatorError."""
        check_group_id(group_id, may_be_empty=may_be_empty)
        return self.runtime.context_for(group_id)

    def _active_contexts_of(self, group_ids: Collection[str]) -> set[GroupContext]:
        # Longer ids are rejected before they reach a shard, and would be slow to hash.
        valid_ids = [group_id for group_id in group_ids if len(group_id) <= STRING_BYTES_MAX]
        contexts = {self.runtime.context_or_none(group_id) for group_id in valid_ids}
        return {context for context in contexts if context is not None}

    def _ask(self, context: GroupContext, ask: Callable[[object, int], GroupOutcome]) -> "asyncio.Future[Any]":
        """Make a request that is answered by this or a later outcome. A cancelled future disconnects it."""
        future = self.runtime.pending_reply(context)
        self._carry_out(context, ask(future, self.runtime.now_ms))
        if not future.done():
            future.add_done_callback(lambda future: self._disconnect(context, future))
        return future

    def _disconnect(self, context: GroupContext, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            context.shard.disconnect(future, self.runtime.now_ms)
            self.runtime.schedule(context)

    def _carry_out(self, context: GroupContext, outcome: GroupOutcome) -> None:
        """Append the writes of an outcome and release its replies."""
        for write in outcome.writes:
            self._write(context, write)
        self._release(context, outcome.replies)
        self.runtime.schedule(context)

    def _write(self, context: GroupContext, write: GroupWrite) -> None:
        try:
            self.runtime.append(context, write.group_id, write.records)
        except CoordinatorError:
            self._carry_out(context, context.shard.append_refused(write, self.runtime.now_ms))
            return
        self._release(context, write.replies)

    def _release(self, context: GroupContext, replies: Sequence[GroupReply]) -> None:
        for reply in replies:
            assert isinstance(reply.reply_to, asyncio.Future)
            context.release(reply.reply_to, reply.result)

    def _released(self, context: GroupContext, result: Any) -> "asyncio.Future[Any]":
        self.runtime.schedule(context)
        return self.runtime.committed(context, result)

    def _delete_topic_offsets(self, context: GroupContext, topics: Collection[str]) -> None:
        for write in context.shard.delete_topic_offsets(topics):
            self._write(context, write)

    def _delete_offsets_of_missing_topics(self, context: GroupContext) -> None:
        """After loading: a topic may have been deleted while its offsets could not be."""
        shard = context.shard
        committed = {
            partition.topic for group in shard.list_groups() for partition in shard.fetch_offsets(group.group_id, None)
        }
        missing = committed - self._topics.metadata.topics.keys()
        if missing:
            _logger.info("removing offsets of deleted topics", topics=sorted(missing))
            self._delete_topic_offsets(context, missing)
