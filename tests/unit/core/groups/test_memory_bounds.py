"""The memory of groups is bounded per member, per group and in total, and follows what the groups hold."""

from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.groups.errors import (
    GroupBytesExceededError,
    OffsetBytesExceededError,
    OversizedFieldError,
    TooManyGroupsError,
)
from logbrook.core.groups.messages import CommitRequest, JoinResult, OffsetToCommit, SyncRequest
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from tests.unit.core.groups.kit import Shell, a_coordinator, a_join, refusal

KIB = 1 << 10


def protocols(size: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", bytes(size)),)


def commit(shell: Shell, group_id: str, partition: int, metadata: str = "", *, producer_id: int = -1) -> object:
    """Return the error of the partition; None if its offset is committed."""
    offset = OffsetToCommit(TopicPartition("t", partition), Offset(1), metadata=metadata)
    is_transactional = producer_id >= 0
    request = CommitRequest(group_id, "", -1, [offset], transactional=is_transactional)
    decision = shell.coordinator.commit_offsets(request, shell.now_ms)
    producer = ProducerIdentity(ProducerId(producer_id), ProducerEpoch(0)) if is_transactional else None
    for key, value in decision.write.records:
        shell.coordinator.replay(key, value, producer)
    return decision.errors.get(offset.partition)


def test_a_member_with_too_much_metadata_is_refused() -> None:
    shell = Shell(a_coordinator(member_bytes_max=8 * KIB))
    assert refusal(shell.join(1, a_join(protocols=protocols(8 * KIB)))) is OversizedFieldError
    assert refusal(shell.join(2, a_join(protocols=protocols(2 * KIB) * 4))) is OversizedFieldError
    assert isinstance(shell.join(3, a_join(protocols=protocols(4 * KIB))), JoinResult)
    shell.coordinator.validate()


def test_a_member_that_would_exceed_the_bound_of_its_group_is_refused_and_the_others_stay() -> None:
    shell = Shell(a_coordinator(group_bytes_max=16 * KIB))
    assert isinstance(shell.join(1, a_join(protocols=protocols(10 * KIB))), JoinResult)
    assert refusal(shell.join(2, a_join("other", protocols=protocols(10 * KIB)))) is GroupBytesExceededError
    assert len(shell.coordinator.describe("g").members) == 1
    assert isinstance(shell.join(3, a_join(group_id="h", protocols=protocols(10 * KIB))), JoinResult)
    shell.coordinator.validate()


def test_a_member_that_joins_again_unchanged_is_not_refused() -> None:
    shell = Shell(a_coordinator(group_bytes_max=16 * KIB, state_bytes_max=20 * KIB))
    joined = shell.join(1, a_join(protocols=protocols(14 * KIB)))
    assert isinstance(joined, JoinResult)
    again = a_join(member_id=joined.member_id, protocols=protocols(14 * KIB))
    assert isinstance(shell.join(2, again), JoinResult)
    larger = a_join(member_id=joined.member_id, protocols=protocols(15 * KIB))
    assert refusal(shell.join(3, larger)) is GroupBytesExceededError


def test_assignments_count_as_memory_of_the_group() -> None:
    shell = Shell(a_coordinator(group_bytes_max=16 * KIB))
    joined = shell.join(1, a_join())
    assert isinstance(joined, JoinResult)
    large = SyncRequest("g", joined.generation, joined.member_id, assignments=[(joined.member_id, bytes(16 * KIB))])
    assert refusal(shell.sync(2, large)) is GroupBytesExceededError
    small = SyncRequest("g", joined.generation, joined.member_id, assignments=[(joined.member_id, bytes(KIB))])
    shell.sync(3, small)
    assert len(shell.coordinator.describe("g").members[0].assignment) == KIB
    shell.coordinator.validate()


def test_all_groups_together_are_bounded_and_memory_is_free_again_when_they_go() -> None:
    shell = Shell(a_coordinator(state_bytes_max=64 * KIB))
    joined = []
    for number in range(20):
        result = shell.join(number, a_join(group_id=f"g{number}", protocols=protocols(10 * KIB)))
        if isinstance(result, JoinResult):
            joined.append(result)
    assert 2 <= len(joined) <= 6
    assert shell.coordinator.state_bytes <= 64 * KIB
    assert refusal(shell.results[19]) in (GroupBytesExceededError, TooManyGroupsError)
    shell.now_ms += 10 * 60_000
    shell.apply(shell.coordinator.tick(shell.now_ms))
    for listing in shell.coordinator.list_groups():
        shell.write(shell.coordinator.delete_group(listing.group_id))
    assert (len(shell.coordinator), shell.coordinator.state_bytes) == (0, 0)


def test_new_offsets_are_refused_at_the_bound_and_existing_ones_can_be_committed_again() -> None:
    shell = Shell(a_coordinator(state_bytes_max=16 * KIB))
    errors = [commit(shell, "g", partition, "m" * 500) for partition in range(30)]
    accepted = errors.index(next(filter(None, errors)))
    assert accepted > 3
    assert {type(error) for error in errors[accepted:]} == {OffsetBytesExceededError}
    assert commit(shell, "g", 0, "n" * 500) is None
    shell.coordinator.validate()


def test_pending_offsets_are_counted_until_their_transaction_ends() -> None:
    shell = Shell(a_coordinator(state_bytes_max=16 * KIB))
    errors = [commit(shell, "g", 0, producer_id=producer_id) for producer_id in range(40)]
    assert type(errors[-1]) is OffsetBytesExceededError
    for producer_id in range(40):
        producer = ProducerIdentity(ProducerId(producer_id), ProducerEpoch(0))
        shell.coordinator.replay_marker(producer, is_commit=False)
    assert shell.coordinator.state_bytes == 0
    assert commit(shell, "g", 0, producer_id=50) is None
    shell.coordinator.validate()


def test_group_ids_count_as_memory() -> None:
    shell = Shell(a_coordinator(state_bytes_max=16 * KIB))
    assert refusal(shell.join(1, a_join(group_id="g" * 16_000))) is TooManyGroupsError
    assert isinstance(shell.join(2, a_join()), JoinResult)
