"""Leases, and data directories that come back."""

import pytest

from logbrook.core.cluster.image import NodeRecord
from logbrook.core.cluster.lifecycle import BrokerLease, DirectoryIdentity, DirectoryLoss, directory_loss


def test_a_lease_is_certain_from_the_sending_of_its_last_answered_renewal() -> None:
    lease = BrokerLease(ttl_s=4.0)
    assert not lease.is_certain(0.0)
    lease.renewed(sent_s=10.0)
    assert lease.is_certain(13.9)
    assert not lease.is_certain(14.0)


def test_a_late_answer_does_not_shorten_a_lease() -> None:
    lease = BrokerLease(ttl_s=4.0)
    lease.renewed(sent_s=12.0)
    lease.renewed(sent_s=10.0)
    assert lease.is_certain(15.9)


def test_a_lost_lease_is_not_certain() -> None:
    lease = BrokerLease(ttl_s=4.0)
    lease.renewed(sent_s=10.0)
    lease.lost(now_s=11.0)
    assert not lease.is_certain(11.0)
    assert lease.renewal_interval_s == 1.0


def test_an_answer_to_a_renewal_from_before_the_loss_does_not_make_a_lease_certain() -> None:
    lease = BrokerLease(ttl_s=4.0)
    lease.lost(now_s=11.0)
    lease.renewed(sent_s=10.5)
    assert not lease.is_certain(11.0)
    lease.renewed(sent_s=11.5)
    assert lease.is_certain(15.4)


IDENTITY = DirectoryIdentity("d", ("r",))


@pytest.mark.parametrize(
    ("node", "identity", "boot_id", "syncs", "loss"),
    [
        (None, IDENTITY, "", False, DirectoryLoss.NOTHING),
        (NodeRecord("d", "r"), IDENTITY, "", True, DirectoryLoss.NOTHING),
        (NodeRecord("other", "r"), IDENTITY, "", True, DirectoryLoss.REPLACED),
        (NodeRecord("d", "later"), IDENTITY, "", True, DirectoryLoss.RESTORED),
        (NodeRecord("d", "r"), IDENTITY, "boot", False, DirectoryLoss.UNSYNCED),
        (NodeRecord("d", "r", boot_id="boot"), IDENTITY, "boot", False, DirectoryLoss.NOTHING),
        (NodeRecord("d", "r", boot_id=""), IDENTITY, "", False, DirectoryLoss.UNSYNCED),
        (NodeRecord("d", "r", stopped_cleanly=True), IDENTITY, "", False, DirectoryLoss.NOTHING),
    ],
)
def test_a_directory_is_compared_with_the_last_life_of_its_node(
    node: NodeRecord | None, identity: DirectoryIdentity, boot_id: str, syncs: bool, loss: DirectoryLoss
) -> None:
    assert directory_loss(node, identity, boot_id, syncs_before_reply=syncs) is loss


def test_a_crash_around_a_registration_is_not_a_restored_backup() -> None:
    begun = IDENTITY.begin_registration("next")
    for node in (NodeRecord("d", "r"), NodeRecord("d", "next")):
        assert directory_loss(node, begun, "", syncs_before_reply=True) is DirectoryLoss.NOTHING
    finished = begun.finish_registration()
    assert finished.registration_ids == ("next",)
    assert finished.begin_registration("third").registration_ids == ("next", "third")


def test_every_attempt_since_the_last_registration_may_be_the_one_that_the_store_has() -> None:
    attempts = IDENTITY.begin_registration("first").begin_registration("second")
    for registration_id in ("r", "first", "second"):
        node = NodeRecord("d", registration_id)
        assert directory_loss(node, attempts, "", syncs_before_reply=True) is DirectoryLoss.NOTHING
