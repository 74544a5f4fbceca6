"""The leader's view of its followers."""

from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.core.replication.leader import AdvanceHighWatermark, PartitionLeader, ProposeRegistration
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset

ONE, TWO = BrokerId(1), BrokerId(2)
EPOCH = BrokerEpoch(7)
LAG_MS = 1_000


def registration(*isr: BrokerId) -> PartitionRegistration:
    return PartitionRegistration((ONE, TWO), isr, ONE, EPOCH, LeaderEpoch(4), elr=() if TWO in isr else (TWO,))


def test_a_follower_that_joins_the_isr_has_the_whole_time_to_reach_the_end_of_the_log() -> None:
    """It joins at the high watermark, which cannot move without it. Dropped at once, it would join again, forever."""
    leader = PartitionLeader(
        ONE,
        registration(ONE),
        1,
        log_end_offset=Offset(58),
        synced_end_offset=Offset(58),
        high_watermark=Offset(58),
        log_start_offset=Offset(0),
        min_insync=2,
        lag_ms_max=LAG_MS,
        now_ms=0,
    )
    leader.on_append(Offset(59))
    leader.on_sync(Offset(59))
    now_ms = 10 * LAG_MS
    (joins,) = leader.on_fetch(TWO, EPOCH, Offset(58), now_ms, log_start_offset=Offset(0), is_eligible=True)
    assert isinstance(joins, ProposeRegistration)
    assert set(joins.registration.isr) == {ONE, TWO}
    leader.on_registration(joins.registration, 2)
    assert leader.on_tick(now_ms + LAG_MS - 1, {ONE, TWO}) == []
    (leaves,) = leader.on_tick(now_ms + LAG_MS + 1, {ONE, TWO})
    assert isinstance(leaves, ProposeRegistration)
    assert leaves.registration.isr == (ONE,)


def leader_alone() -> PartitionLeader:
    return PartitionLeader(
        ONE,
        PartitionRegistration((ONE, TWO), (ONE,), ONE, EPOCH, LeaderEpoch(4)),
        7,
        log_end_offset=Offset(58),
        synced_end_offset=Offset(58),
        high_watermark=Offset(58),
        log_start_offset=Offset(0),
        min_insync=1,
        lag_ms_max=LAG_MS,
        now_ms=0,
    )


def proposal_of(leader: PartitionLeader, broker_epoch: BrokerEpoch = EPOCH) -> ProposeRegistration:
    (proposal,) = leader.on_fetch(TWO, broker_epoch, Offset(58), 1_000, log_start_offset=Offset(0), is_eligible=True)
    assert isinstance(proposal, ProposeRegistration)
    return proposal


def test_the_failure_of_an_earlier_proposal_does_not_end_the_one_in_flight() -> None:
    """The store may have taken it already, so the member that it adds counts (simulation, seed 200448)."""
    leader = leader_alone()
    earlier = proposal_of(leader)
    leader.on_proposal_failed(earlier, 0, 100, is_unknown=False)
    proposal = proposal_of(leader)
    # Another attempt of the earlier one.
    leader.on_proposal_failed(earlier, 0, 100, is_unknown=False)
    leader.on_append(Offset(59))
    assert leader.on_sync(Offset(59)) == []
    leader.on_proposal_failed(proposal, 0, 100, is_unknown=False)
    assert leader.on_sync(Offset(59)) == [AdvanceHighWatermark(Offset(59))]


def test_a_follower_joins_the_isr_when_it_has_the_deletions_that_the_leader_knows() -> None:
    """It may be elected next: then records would be back whose deletion was acknowledged."""
    alone = PartitionRegistration((ONE, TWO), (ONE,), ONE, EPOCH, LeaderEpoch(4))
    leader = PartitionLeader(
        ONE,
        alone,
        7,
        log_end_offset=Offset(58),
        synced_end_offset=Offset(58),
        high_watermark=Offset(58),
        log_start_offset=Offset(10),
        min_insync=1,
        lag_ms_max=LAG_MS,
        now_ms=0,
    )
    assert leader.on_fetch(TWO, EPOCH, Offset(58), 0, log_start_offset=Offset(9), is_eligible=True) == []
    leader.on_deletion(Offset(20))
    assert leader.has_deletion(Offset(20))
    assert leader.on_fetch(TWO, EPOCH, Offset(58), 0, log_start_offset=Offset(10), is_eligible=True) == []
    (joins,) = leader.on_fetch(TWO, EPOCH, Offset(58), 0, log_start_offset=Offset(20), is_eligible=True)
    assert isinstance(joins, ProposeRegistration)
    leader.on_deletion(Offset(30))
    assert not leader.has_deletion(Offset(30)), "the store may have added it to the ISR"
    leader.on_fetch(TWO, EPOCH, Offset(58), 0, log_start_offset=Offset(30), is_eligible=True)
    assert leader.has_deletion(Offset(30))


def test_a_deletion_waits_while_another_replica_is_eligible() -> None:
    leader = PartitionLeader(
        ONE,
        registration(ONE),
        7,
        log_end_offset=Offset(58),
        synced_end_offset=Offset(58),
        high_watermark=Offset(58),
        log_start_offset=Offset(0),
        min_insync=2,
        lag_ms_max=LAG_MS,
        now_ms=0,
    )
    leader.on_deletion(Offset(20))
    assert not leader.has_deletion(Offset(20))


def test_a_proposal_names_the_life_of_the_broker_that_has_caught_up_in_every_attempt() -> None:
    leader = leader_alone()
    proposal = proposal_of(leader)
    assert proposal.partition_epoch == 7
    assert proposal.joining == ((TWO, EPOCH),)
    leader.on_proposal_failed(proposal, 1_000, 100, is_unknown=True)
    # A later life, which has lost its disk.
    assert (
        leader.on_fetch(TWO, BrokerEpoch(EPOCH + 1), Offset(0), 1_100, log_start_offset=Offset(0), is_eligible=True)
        == []
    )
    assert leader.retry_proposal(1_100) == [proposal]


def test_a_proposal_that_is_refused_after_attempts_of_unknown_outcome_is_given_up() -> None:
    """A life that has ended never returns. The later one joins when it has caught up."""
    leader = leader_alone()
    proposal = proposal_of(leader)
    leader.on_proposal_failed(proposal, 1_000, 0, is_unknown=True)
    assert leader.retry_proposal(1_000) == [proposal]
    leader.on_proposal_failed(proposal, 1_000, 0, is_unknown=False)
    assert leader.retry_proposal(1_000) == []
    assert proposal_of(leader, BrokerEpoch(EPOCH + 1)).joining == ((TWO, EPOCH + 1),)


def fetch_of(leader: PartitionLeader, session_id: int) -> None:
    leader.on_fetch(TWO, EPOCH, Offset(58), 0, log_start_offset=Offset(0), is_eligible=True, session_id=session_id)


def leader_of_two() -> PartitionLeader:
    leader = leader_alone()
    leader.on_registration(PartitionRegistration((ONE, TWO), (ONE, TWO), ONE, EPOCH, LeaderEpoch(4)), 8)
    return leader


def test_the_second_fetch_of_a_session_confirms_a_leader() -> None:
    leader = leader_of_two()
    fetch_of(leader, 1)
    before = leader.fetches()
    fetch_of(leader, 1)
    assert not leader.is_confirmed(before)
    fetch_of(leader, 1)
    assert leader.is_confirmed(before)


def test_fetches_over_two_connections_do_not_confirm_a_leader() -> None:
    """Both may have been sent before the leader was asked: the follower did not wait for an answer to the first."""
    leader = leader_of_two()
    fetch_of(leader, 1)
    before = leader.fetches()
    fetch_of(leader, 1)
    fetch_of(leader, 2)
    assert not leader.is_confirmed(before)
    fetch_of(leader, 1)
    assert not leader.is_confirmed(before)
    fetch_of(leader, 1)
    assert leader.is_confirmed(before)


def test_fetches_without_a_session_do_not_confirm_a_leader() -> None:
    leader = leader_of_two()
    before = leader.fetches()
    for _ in range(3):
        fetch_of(leader, 0)
    assert not leader.is_confirmed(before)
