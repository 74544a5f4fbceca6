"""ListTransactions."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.unit.server.handlers.kit import Peer, every_version, fresh
from tests.unit.server.handlers.transaction_kit import Identity, end, init, write

DURATIONS_SINCE = 1
PATTERNS_SINCE = 2


@pytest.fixture
def ids(peer: Peer) -> list[Identity]:
    """One that never began, one that is open, one that was committed and one that was aborted."""
    topic, word = peer.create(), fresh("listed")
    found = [init(peer, f"{word}-{name}") for name in ("empty", "open", "committed", "aborted")]
    for who in found[1:]:
        assert write(peer, who, topic) == ErrorCode.NONE
    assert end(peer, found[2]).error_code == ErrorCode.NONE
    assert end(peer, found[3], is_commit=False).error_code == ErrorCode.NONE
    return found


def listed(answer: ListTransactionsResponse, ids: list[Identity]) -> dict[str, str]:
    """The states of these, among those of other tests, by the last words of their names."""
    ours = {who.transactional_id: who.producer_id for who in ids}
    assert answer.error_code == ErrorCode.NONE
    found = [one for one in answer.transaction_states if one.transactional_id in ours]
    assert all(one.producer_id == ours[one.transactional_id] for one in found)
    return {one.transactional_id.rpartition("-")[2]: one.transaction_state for one in found}


@every_version(ListTransactionsRequest)
def test_all_are_listed_with_their_states(peer: Peer, ids: list[Identity], version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(), ListTransactionsResponse, version)
    states = {"empty": "Empty", "open": "Ongoing", "committed": "CompleteCommit", "aborted": "CompleteAbort"}
    assert listed(answer, ids) == states


@every_version(ListTransactionsRequest)
def test_states_and_producers_are_filters(peer: Peer, ids: list[Identity], version: int) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Empty"])
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"open", "empty"}
    request = ListTransactionsRequest(producer_id_filters=[ids[1].producer_id, ids[2].producer_id])
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"open", "committed"}
    request.state_filters = ["CompleteCommit"]
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"committed"}


@every_version(ListTransactionsRequest)
def test_states_that_are_not_known_are_told_and_match_nothing(peer: Peer, ids: list[Identity], version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(state_filters=["Odd", "Empty"]), ListTransactionsResponse, version)
    assert answer.unknown_state_filters == ["Odd"]
    assert listed(answer, ids).keys() == {"empty"}
    answer = peer.ask(ListTransactionsRequest(state_filters=["Odd"]), ListTransactionsResponse, version)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Odd"], [])


@every_version(ListTransactionsRequest, first=DURATIONS_SINCE)
def test_the_duration_is_a_filter(peer: Peer, ids: list[Identity], version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(duration_filter=3_600_000), ListTransactionsResponse, version)
    assert listed(answer, ids) == {}


@every_version(ListTransactionsRequest, first=PATTERNS_SINCE)
def test_a_pattern_is_a_filter_for_whole_ids(peer: Peer, ids: list[Identity], version: int) -> None:
    request = ListTransactionsRequest(transactional_id_pattern=".*-(open|empty)")
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"open", "empty"}
    request = ListTransactionsRequest(transactional_id_pattern="open")
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids) == {}


@every_version(ListTransactionsRequest, first=PATTERNS_SINCE)
def test_a_pattern_that_does_not_read_is_refused(peer: Peer, version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(transactional_id_pattern="("), ListTransactionsResponse, version)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
