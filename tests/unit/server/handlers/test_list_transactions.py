"""ListTransactions."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh
from tests.unit.server.handlers.transaction_kit import Identity, end, init, write

DURATIONS_SINCE = 1
PATTERNS_SINCE = 2


@pytest.fixture
def ids(peer: Peer) -> list[Identity]:
    """Transactional ids in the states Empty, Ongoing, CompleteCommit and CompleteAbort."""
    topic, word = peer.create(), fresh("listed")
    producers = [init(peer, f"{word}-{name}") for name in ("empty", "open", "committed", "aborted")]
    for identity in producers[1:]:
        assert write(peer, identity, topic) == ErrorCode.NONE
    assert end(peer, producers[2]).error_code == ErrorCode.NONE
    assert end(peer, producers[3], is_commit=False).error_code == ErrorCode.NONE
    return producers


def listed(answer: ListTransactionsResponse, ids: list[Identity]) -> dict[str, str]:
    """Return the states of these ids, ignoring those of other tests, by the last words of their names."""
    ours = {identity.transactional_id: identity.producer_id for identity in ids}
    assert answer.error_code == ErrorCode.NONE
    states = [state for state in answer.transaction_states if state.transactional_id in ours]
    assert all(state.producer_id == ours[state.transactional_id] for state in states)
    return {state.transactional_id.rpartition("-")[2]: state.transaction_state for state in states}


@distinct_versions(ListTransactionsRequest)
def test_all_are_listed_with_their_states(peer: Peer, ids: list[Identity], version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(), ListTransactionsResponse, version)
    states = {"empty": "Empty", "open": "Ongoing", "committed": "CompleteCommit", "aborted": "CompleteAbort"}
    assert listed(answer, ids) == states


@distinct_versions(ListTransactionsRequest)
def test_states_and_producers_are_filters(peer: Peer, ids: list[Identity], version: int) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Empty"])
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"open", "empty"}
    request = ListTransactionsRequest(producer_id_filters=[ids[1].producer_id, ids[2].producer_id])
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"open", "committed"}
    request.state_filters = ["CompleteCommit"]
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"committed"}


@distinct_versions(ListTransactionsRequest)
def test_unknown_states_are_returned_and_match_nothing(peer: Peer, ids: list[Identity], version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(state_filters=["Odd", "Empty"]), ListTransactionsResponse, version)
    assert answer.unknown_state_filters == ["Odd"]
    assert listed(answer, ids).keys() == {"empty"}
    answer = peer.ask(ListTransactionsRequest(state_filters=["Odd"]), ListTransactionsResponse, version)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Odd"], [])


@distinct_versions(ListTransactionsRequest, first=DURATIONS_SINCE)
def test_the_duration_is_a_filter(peer: Peer, ids: list[Identity], version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(duration_filter=3_600_000), ListTransactionsResponse, version)
    assert listed(answer, ids) == {}


@distinct_versions(ListTransactionsRequest, first=PATTERNS_SINCE)
def test_a_pattern_is_a_filter_for_whole_ids(peer: Peer, ids: list[Identity], version: int) -> None:
    request = ListTransactionsRequest(transactional_id_pattern=".*-(open|empty)")
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids).keys() == {"open", "empty"}
    request = ListTransactionsRequest(transactional_id_pattern="open")
    assert listed(peer.ask(request, ListTransactionsResponse, version), ids) == {}


@distinct_versions(ListTransactionsRequest, first=PATTERNS_SINCE)
def test_a_pattern_that_does_not_read_is_refused(peer: Peer, version: int) -> None:
    answer = peer.ask(ListTransactionsRequest(transactional_id_pattern="("), ListTransactionsResponse, version)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
