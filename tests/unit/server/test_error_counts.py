"""Errors that clients receive are counted by API and code, where responses are encoded."""

from collections import Counter
from itertools import cycle
from typing import Any

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.response_errors import response_error_codes
from logbrook.protocol.schema import Message
from logbrook.server.api import Api
from logbrook.server.handlers import all_apis
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import Peer

APIS = pytest.mark.parametrize("api", all_apis(), ids=lambda api: api.name)
CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


class FailedResponse:
    """A response in one version with every possible error code set, and the list of these codes."""

    def __init__(self, response: type[Message], version: int) -> None:
        self._version = version
        self._codes = cycle(CODES)
        self.codes: Counter[int] = Counter()
        self.message = self._fill(response)

    def _fill(self, message_class: type[Message]) -> Any:
        message = message_class()
        for field in message_class.FIELDS:
            if self._version not in field.versions:
                continue
            if not isinstance(field.kind, str):
                items = [self._fill(field.kind) for _ in range(2 if field.array else 1)]
                setattr(message, field.name, items if field.array else items[0])
            elif field.name.endswith("error_code"):
                code = next(self._codes)
                self.codes[code] += 1
                setattr(message, field.name, code)
        return message


@APIS
def test_every_error_code_of_a_response_is_found_once(api: Api[Any]) -> None:
    for version in {api.versions.first, api.versions.last}:
        failed = FailedResponse(api.response, version)
        assert failed.codes, "every API reports errors"
        assert Counter(response_error_codes(failed.message, version)) == failed.codes


@APIS
def test_a_response_without_errors_has_no_error_codes(api: Api[Any]) -> None:
    for version in {api.versions.first, api.versions.last}:
        assert not response_error_codes(api.response(), version)


def test_errors_that_clients_receive_are_counted_by_api_and_code() -> None:
    with HandlerShell() as broker, Peer(broker) as peer:
        peer.ask(FindCoordinatorRequest(key_type=7, coordinator_keys=["a", "b"]), FindCoordinatorResponse)
        partitions = [OffsetCommitRequestPartition(partition_index=number) for number in range(3)]
        topic = OffsetCommitRequestTopic(name="unknown", partitions=partitions)
        peer.ask(OffsetCommitRequest(group_id="group", topics=[topic]), OffsetCommitResponse, 9)
        assert dict(broker.services.probe.errors) == {
            ("FindCoordinator", ErrorCode.INVALID_REQUEST.name): 2,
            ("OffsetCommit", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name): 3,
        }
