"""Leader epochs and the offsets at which they start."""

from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.storage.leader_epochs import EpochStart, LeaderEpochs


def three() -> LeaderEpochs:
    """Epoch 2 wrote 0 to 9, epoch 5 wrote 10 to 29, epoch 6 writes from 30 on."""
    epochs = LeaderEpochs()
    for epoch, start_offset in ((2, 0), (5, 10), (6, 30)):
        assert epochs.assign(LeaderEpoch(epoch), Offset(start_offset))
    return epochs


def test_an_empty_log_has_no_leader_epoch() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest == -1
    assert epochs.end_offset(LeaderEpoch(7), Offset(0)) is None
    assert epochs.epoch_of(Offset(0)) is None


def test_only_a_higher_epoch_begins_a_new_one() -> None:
    epochs = three()
    assert not epochs.assign(LeaderEpoch(6), Offset(40))
    assert not epochs.assign(LeaderEpoch(5), Offset(40))
    assert not epochs.assign(LeaderEpoch(-1), Offset(40))
    assert epochs.latest == 6
    assert epochs.starts == [(2, 0), (5, 10), (6, 30)]


def test_an_epoch_ends_where_the_next_begins() -> None:
    assert three().end_offset(LeaderEpoch(2), log_end_offset=Offset(50)) == EpochStart(LeaderEpoch(2), Offset(10))
    assert three().end_offset(LeaderEpoch(5), log_end_offset=Offset(50)) == EpochStart(LeaderEpoch(5), Offset(30))


def test_the_latest_epoch_ends_at_the_end_of_the_log() -> None:
    assert three().end_offset(LeaderEpoch(6), log_end_offset=Offset(50)) == EpochStart(LeaderEpoch(6), Offset(50))


def test_an_epoch_without_records_is_answered_with_the_one_before_it() -> None:
    assert three().end_offset(LeaderEpoch(4), log_end_offset=Offset(50)) == EpochStart(LeaderEpoch(2), Offset(10))
    assert three().end_offset(LeaderEpoch(99), log_end_offset=Offset(50)) == EpochStart(LeaderEpoch(6), Offset(50))


def test_an_epoch_older_than_all_has_no_end() -> None:
    assert three().end_offset(LeaderEpoch(1), log_end_offset=Offset(50)) is None


def test_every_offset_belongs_to_the_epoch_that_began_last_before_it() -> None:
    assert [three().epoch_of(Offset(offset)) for offset in (0, 9, 10, 29, 30, 99)] == [2, 2, 5, 5, 6, 6]


def test_a_truncation_forgets_the_epochs_that_began_past_it() -> None:
    epochs = three()
    epochs.truncate_end(Offset(30))
    assert epochs.starts == [(2, 0), (5, 10)]
    assert epochs.latest == 5
    epochs.truncate_end(Offset(11))
    assert epochs.starts == [(2, 0), (5, 10)]
    epochs.truncate_end(Offset(0))
    assert epochs.starts == []
    assert epochs.latest == -1


def test_an_epoch_may_begin_again_after_a_truncation() -> None:
    epochs = three()
    epochs.truncate_end(Offset(20))
    assert epochs.assign(LeaderEpoch(6), Offset(20))
    assert epochs.end_offset(LeaderEpoch(5), log_end_offset=Offset(50)) == EpochStart(LeaderEpoch(5), Offset(20))


def test_the_epoch_in_which_the_log_starts_is_kept() -> None:
    epochs = three()
    epochs.truncate_start(Offset(15))
    assert epochs.starts == [(5, 10), (6, 30)]
    epochs.truncate_start(Offset(30))
    assert epochs.starts == [(6, 30)]
    epochs.truncate_start(Offset(99))
    assert epochs.starts == [(6, 30)]
    assert epochs.latest == 6


def test_an_epoch_of_which_nothing_is_left_is_kept_until_the_log_starts_in_the_next() -> None:
    """A follower that ends there has all of it."""
    epochs = LeaderEpochs()
    epochs.assign(LeaderEpoch(0), Offset(0))
    epochs.truncate_start(Offset(10))
    epochs.assign(LeaderEpoch(1), Offset(10))
    assert epochs.starts == [(0, 0), (1, 10)]
    assert epochs.epoch_of(Offset(10)) == 1
    epochs.truncate_start(Offset(11))
    assert epochs.starts == [(1, 10)]


def test_ends_after_damage_are_unknown_until_the_damage_is_truncated() -> None:
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(1), Offset(0)), EpochStart(LeaderEpoch(2), Offset(4))])
    assert epochs.is_known(Offset(9))
    epochs.unknown_from = Offset(6)
    assert epochs.is_known(Offset(4))
    assert not epochs.is_known(Offset(6))
    epochs.truncate_end(Offset(7))
    assert not epochs.is_known(Offset(6))
    epochs.truncate_end(Offset(6))
    assert epochs.is_known(Offset(6))
