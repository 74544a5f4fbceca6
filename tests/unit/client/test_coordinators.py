"""The cache of coordinators: which errors drop an address from it."""

import pytest

from logbrook.client import Client, ClientError, Coordinators
from logbrook.client.coordinators import CoordinatorKind
from logbrook.client.errors import check_code
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.framing import read_request_start
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.unit.client.scripted_broker import ScriptedBroker, answer


class Coordinator:
    """A broker that is its own coordinator, and answers heartbeats with these codes in turn; None closes."""

    def __init__(self, *codes: ErrorCode | None) -> None:
        self._codes = list(codes)
        self.broker = ScriptedBroker(self._respond)

    @property
    def lookups(self) -> int:
        return [start.api_key for start in self.broker.starts].count(FindCoordinatorRequest.API_KEY)

    def _respond(self, frame: memoryview) -> bytes:
        if read_request_start(frame).api_key == FindCoordinatorRequest.API_KEY:
            return answer(frame, FindCoordinatorResponse(host=self.broker.host, port=self.broker.port))
        code = self._codes.pop(0)
        return b"" if code is None else answer(frame, HeartbeatResponse(error_code=code))


def heartbeat(coordinators: Coordinators, group_id: str) -> None:
    with coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
        check_code(connection.request(HeartbeatRequest(), HeartbeatResponse, 4).error_code, "staying in the group")


@pytest.mark.parametrize(
    ("code", "lookups"),
    [
        (ErrorCode.NOT_COORDINATOR, 2),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 2),
        (None, 2),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1),
        (ErrorCode.UNKNOWN_MEMBER_ID, 1),
    ],
)
def test_a_moved_coordinator_and_a_lost_connection_cause_a_new_lookup(code: ErrorCode | None, lookups: int) -> None:
    coordinator = Coordinator(code, ErrorCode.NONE, ErrorCode.NONE)
    with coordinator.broker, Client(coordinator.broker.address) as client:
        coordinators = Coordinators(client)
        with pytest.raises(ClientError):
            heartbeat(coordinators, "g")
        heartbeat(coordinators, "g")
        heartbeat(coordinators, "g")
    assert coordinator.lookups == lookups


def test_groups_and_transactions_are_looked_up_separately() -> None:
    coordinator = Coordinator()
    with coordinator.broker, Client(coordinator.broker.address) as client:
        coordinators = Coordinators(client)
        for kind, key in [
            (CoordinatorKind.GROUP, "a"),
            (CoordinatorKind.GROUP, "b"),
            (CoordinatorKind.TRANSACTION, "a"),
        ] * 2:
            with coordinators.connection(kind, key) as connection:
                assert not connection.is_closed
    assert coordinator.lookups == 3
