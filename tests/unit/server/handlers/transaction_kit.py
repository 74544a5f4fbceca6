"""Transactions for the tests of the handlers: individual requests, in any version."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.unit.server.handlers.group_kit import Member
from tests.unit.server.handlers.kit import LATEST, Peer, fresh

TIMEOUT_MS = 60_000
# The last version of AddPartitionsToTxn for clients, and the last of others in the first version of the protocol.
ADD_PARTITIONS_VERSION = 3
FIRST_PROTOCOL_END_VERSION = 4
SECOND_PROTOCOL_END_VERSION = 5
FIRST_PROTOCOL_PRODUCE_VERSION = 11
SECOND_PROTOCOL_PRODUCE_VERSION = 12
FENCED_SINCE = 2
# Version of TxnOffsetCommit.
ADDS_THE_GROUP_SINCE = 5
# A consumer that is not a member of a group.
SIMPLE = Member("", -1)


class Identity(NamedTuple):
    """The identity that a transactional producer sends."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def predecessor(self) -> "Identity":
        return self._replace(epoch=self.epoch - 1)


def init(peer: Peer, transactional_id: str | None = None, timeout_ms: int = TIMEOUT_MS) -> Identity:
    """Return the producer of a transactional id, by default of a new one."""
    transactional_id = fresh("transactional-id") if transactional_id is None else transactional_id
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = peer.ask(request, InitProducerIdResponse)
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    return Identity(transactional_id, answer.producer_id, answer.producer_epoch)


def add_partitions(
    peer: Peer, identity: Identity, partitions: Mapping[str, Sequence[int]], version: int = ADD_PARTITIONS_VERSION
) -> dict[tuple[str, int], int]:
    """Return the error codes by partition."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in partitions.items()
        ],
    )
    answer = peer.ask(request, AddPartitionsToTxnResponse, version)
    return {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }


def add_offsets(peer: Peer, identity: Identity, group: str, version: int | None = None) -> int:
    """Return the error code."""
    request = AddOffsetsToTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )
    return peer.ask(request, AddOffsetsToTxnResponse, version).error_code


def commit_in(
    peer: Peer,
    identity: Identity,
    group: str,
    offsets: dict[str, dict[int, int]],
    version: int,
    *,
    member: Member = SIMPLE,
    instance_id: str | None = None,
    metadata: str | None = "",
) -> list[list[int]]:
    """Commit offsets, adding the group first if necessary. Returns the error codes of each partition of each topic."""
    if version < ADDS_THE_GROUP_SINCE:
        add_offsets(peer, identity, group)
    request = TxnOffsetCommitRequest(
        transactional_id=identity.transactional_id,
        group_id=group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.generation,
        member_id=member.id,
        group_instance_id=instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                    for number, offset in numbers.items()
                ],
            )
            for name, numbers in offsets.items()
        ],
    )
    answer = peer.ask(request, TxnOffsetCommitResponse, version)
    assert [topic.name for topic in answer.topics] == [*offsets]
    return [[partition.error_code for partition in topic.partitions] for topic in answer.topics]


def write(
    peer: Peer,
    identity: Identity,
    topic: str,
    sequence: int = 0,
    version: int = SECOND_PROTOCOL_PRODUCE_VERSION,
    partition: int = 0,
) -> int:
    """Write one record. Returns the error code."""
    batch = build_batch(
        [Record(value=b"v")],
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=ProducerEpoch(identity.epoch),
        base_sequence=sequence,
        transactional=True,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(transactional_id=identity.transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data])
    (answer,) = peer.ask(request, ProduceResponse, version).responses
    return answer.partition_responses[0].error_code


def end(
    peer: Peer, identity: Identity, version: int = SECOND_PROTOCOL_END_VERSION, *, is_commit: bool = True
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=is_commit,
    )
    return peer.ask(request, EndTxnResponse, version)


def stable_end(peer: Peer, topic: str, partition: int = 0) -> int:
    """Return the last stable offset."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    (answer,) = peer.ask(request, ListOffsetsResponse).topics
    return answer.partitions[0].offset


def fenced_code(version: int) -> ErrorCode:
    """The error code of a fenced producer: old clients only know INVALID_PRODUCER_EPOCH (KIP-588)."""
    return ErrorCode.PRODUCER_FENCED if version >= FENCED_SINCE else ErrorCode.INVALID_PRODUCER_EPOCH
