import pytest

from logbrook.core.groups.errors import FencedInstanceIdError, UnknownMemberIdError
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.member import Member
from logbrook.core.groups.records import decode_group_metadata
from tests.unit.core.groups.kit import a_join, subscription


def a_member(member_id: str, *protocols: str, instance_id: str | None = None) -> Member:
    offered = tuple((name, subscription("t", f"of-{member_id}")) for name in protocols or ("range",))
    return Member.from_request(a_join(instance_id=instance_id, protocols=offered), member_id)


def a_group(*members: Member) -> Group:
    group = Group("g")
    for member in members:
        group.add(member, "consumer")
    return group


def test_the_first_member_leads() -> None:
    assert a_group(a_member("a"), a_member("b")).leader_id == "a"


def test_when_the_leader_goes_the_next_leads() -> None:
    group = a_group(a_member("a"), a_member("b"), a_member("c"))
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("c")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None


def test_the_protocol_with_most_votes_wins() -> None:
    group = a_group(a_member("a", "x", "y"), a_member("b", "y", "x"), a_member("c", "y", "x"))
    assert group.select_protocol() == "y"


def test_only_protocols_that_all_have_get_votes() -> None:
    group = a_group(a_member("a", "x", "z"), a_member("b", "x", "z"), a_member("c", "y", "z"))
    assert group.select_protocol() == "z"


def test_in_a_tie_the_first_members_vote_decides() -> None:
    assert a_group(a_member("a", "x", "y"), a_member("b", "y", "x")).select_protocol() == "x"


def test_a_protocol_that_is_listed_twice_counts_once() -> None:
    group = a_group(a_member("a", "x", "x"), a_member("b", "x"))
    group.state = GroupState.STABLE
    assert group.supports("consumer", ("x",))
    assert group.select_protocol() == "x"


def test_a_member_that_changes_its_protocols_changes_what_is_common() -> None:
    group = a_group(a_member("a", "x", "y"), a_member("b", "x", "y"))
    group.state = GroupState.STABLE
    group.update(group.members["a"], a_join(protocols=(("y", b""),)))
    assert not group.supports("consumer", ("x",))
    assert group.supports("consumer", ("y",))


def test_an_empty_group_takes_any_protocol_but_not_none() -> None:
    group = Group("g")
    assert group.supports("connect", ("default",))
    assert not group.supports("", ("default",))
    assert not group.supports("connect", ())


def test_a_static_member_keeps_its_place_under_another_id() -> None:
    group = a_group(a_member("a", instance_id="i"), a_member("b"))
    group.pending_sync = {"a": None, "b": None}
    group.replace_static(group.members["a"], "a2")
    assert list(group.members) == ["a2", "b"]
    assert list(group.pending_sync) == ["a2", "b"]
    assert group.leader_id == "a2"
    with pytest.raises(FencedInstanceIdError):
        group.current_member("a", "i")
    with pytest.raises(UnknownMemberIdError):
        group.current_member("a", None)
    assert group.current_member("a2", "i") is group.members["a2"]


def test_an_unused_instance_id_is_an_unknown_member() -> None:
    group = a_group(a_member("a"))
    with pytest.raises(UnknownMemberIdError):
        group.current_member("a", "i")


def test_the_topics_of_a_group_are_those_of_all_members() -> None:
    group = a_group(a_member("a"), a_member("b"))
    group.begin_generation()
    assert group.subscribed_topics == frozenset({"t", "of-a", "of-b"})
    assert not group.is_subscribed("u")


def test_one_member_that_cannot_be_read_makes_the_topics_unknown() -> None:
    odd = Member.from_request(a_join(protocols=(("range", b"?"),)), "odd")
    group = a_group(a_member("a"), odd)
    group.begin_generation()
    assert group.subscribed_topics is None
    assert group.is_subscribed("u"), "what is not known is assumed"


def test_groups_of_other_protocol_types_have_no_known_topics() -> None:
    group = Group("g")
    group.add(a_member("a"), "connect")
    group.begin_generation()
    assert group.subscribed_topics is None


def test_a_group_is_restored_from_what_was_written() -> None:
    group = a_group(a_member("a", instance_id="i"), a_member("b"))
    group.begin_generation()
    group.members["b"].assignment = b"all"
    group.move_to(GroupState.STABLE, 17)
    _, value = group.metadata_record()
    assert value is not None

    restored = Group("g")
    restored.written_metadata = decode_group_metadata(value)
    restored.restore(now_ms=100)
    restored.validate()
    assert restored.state is GroupState.STABLE
    assert (restored.generation, restored.leader_id, restored.protocol_name) == (1, "a", "range")
    assert restored.state_timestamp_ms == 17
    assert restored.static_members == {"i": "a"}
    assert restored.members["b"].assignment == b"all"
    assert restored.members["b"].session_deadline_ms == 10_100
    assert restored.subscribed_topics == group.subscribed_topics


def test_a_leader_that_does_not_exist_is_replaced_at_a_restore() -> None:
    group = a_group(a_member("a"))
    group.begin_generation()
    group.leader_id = "stranger"
    _, value = group.metadata_record()
    assert value is not None
    restored = Group("g")
    restored.written_metadata = decode_group_metadata(value)
    restored.restore(now_ms=0)
    assert restored.leader_id == "a"
