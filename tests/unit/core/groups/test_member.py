from logbrook.core.groups.member import Member
from tests.unit.core.groups.kit import a_join


def a_member() -> Member:
    return Member.from_request(a_join(protocols=(("x", b"1"), ("y", b"2"))), "m")


def test_protocols_match_by_name_metadata_and_order() -> None:
    member = a_member()
    assert member.matches([("x", b"1"), ("y", b"2")])
    assert not member.matches([("y", b"2"), ("x", b"1")])
    assert not member.matches([("x", b"1"), ("y", b"3")])
    assert not member.matches([("x", b"1")])


def test_a_member_votes_for_the_first_candidate_it_has() -> None:
    assert a_member().vote({"y", "z"}) == "y"
    assert a_member().vote({"y", "x"}) == "x"


def test_metadata_is_kept_in_memory_of_its_own() -> None:
    buffer = bytearray(b"subscription")
    member = Member.from_request(a_join(protocols=(("x", memoryview(buffer)),)), "m")  # type: ignore[arg-type]
    buffer[:] = b"overwritten!"
    assert member.protocols == {"x": b"subscription"}


def test_a_new_member_that_waits_can_expire_and_an_old_one_cannot() -> None:
    member = a_member()
    member.join_reply_to = "join"
    assert not member.cannot_heartbeat
    member.is_new = False
    assert member.cannot_heartbeat


def test_a_member_that_waits_for_a_sync_cannot_expire() -> None:
    member = a_member()
    member.is_new = False
    assert not member.cannot_heartbeat
    member.sync_reply_to = "sync"
    assert member.cannot_heartbeat
