"""Requests of every API and version with invalid content: mutated bytes, and well-formed ones with arbitrary values."""

from random import Random
from typing import Any

import pytest

from logbrook.client import Client
from logbrook.protocol.decoding import decode
from logbrook.protocol.errors import MalformedMessageError
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.protocol.reader import Reader, skip_tags
from logbrook.protocol.schema import ApiMessage
from logbrook.server.handlers import all_apis
from tests.hostile.victim import Victim
from tests.hostile.wire import all_answers, is_hung_up_on, receive_frame, request_frame
from tests.unit.protocol.every_message import CASES, MESSAGES, Case, encoded
from tests.unit.protocol.hostile_bytes import mutated, with_hostile_lengths
from tests.unit.protocol.samples import Sampler

FLAGS = ("--groups-initial-rebalance-delay-ms", "0", "--auto-create-topics")

SERVED = {api.request: api.versions for api in all_apis()}
REQUESTS = [case for case in CASES if case.is_request and case.version in SERVED.get(case.message, ())]
RESPONSES = {message.API_KEY: message for _, message in MESSAGES if message.__name__.endswith("Response")}
HOSTILE_PER_VERSION = 8
MUTATED_PER_VERSION = 6
# The topic of the broker's own health check is not among the names: clients are allowed to delete topics.
NAMES = (
    "there",
    "not-there",
    "group",
    "consumer",
    "range",
    "",
    "1",
    "-1",
    "cleanup.policy",
    "compact",
    "min.insync.replicas",
    "retention.ms",
    "__consumer_offsets",
    "__cluster_metadata",
    "../../etc/passwd",
    "a" * 300,
    "nul\x00in it",
)
NUMBERS = (0, 0, 0, 1, 1, 2, 3, -1, -1, -2, -3, 4, 100)


class PlausibleSampler(Sampler):
    """Random messages with plausible names and numbers, so that handlers get further than their first check."""

    topic_id = bytes(16)

    def _primitive(self, kind: str) -> Any:
        if self._random.random() < 0.1:
            return super()._primitive(kind)
        if kind.startswith("int"):
            return self._random.choice(NUMBERS)
        if kind == "string":
            return self._random.choice(NAMES)
        return self.topic_id if kind == "uuid" else super()._primitive(kind)


def is_malformed(case: Case, body: bytes) -> bool:
    try:
        decode(case.message, case.version, Reader(memoryview(body)))
    except MalformedMessageError:
        return True
    return False


def send_body(victim: Victim, case: Case, body: bytes) -> None:
    """Send a request with this body. The connection is closed if it cannot be decoded."""
    with victim.connect() as connected:
        connected.sendall(request_frame(case.message(), case.version, body=body))
        if is_malformed(case, body):
            assert is_hung_up_on(connected), (case, body)
        else:
            all_answers(connected)


def test_hostile_lengths_and_counts_close_the_connection_in_every_version(victim: Victim) -> None:
    for case in REQUESTS:
        full = Sampler(str(case), full=True).message(case.message, case.version)
        hostile = list(with_hostile_lengths(full, case.version))
        for body in Random(str(case)).sample(hostile, min(HOSTILE_PER_VERSION, len(hostile))):
            send_body(victim, case, body)


def test_mutated_requests_of_every_version_are_answered_or_close_the_connection(victim: Victim) -> None:
    for case in REQUESTS:
        random = Random(str(case))
        body = encoded(Sampler(str(case), full=True).message(case.message, case.version), case.version)
        for _ in range(MUTATED_PER_VERSION):
            send_body(victim, case, mutated(body, random))


def check_answer(victim: Victim, case: Case, message: ApiMessage) -> None:
    """Check that a well-formed request is answered with its API's response, unless it has none."""
    with victim.connect() as connected:
        connected.sendall(request_frame(message, case.version, 4711))
        if isinstance(message, ProduceRequest) and message.acks == 0:
            assert all_answers(connected) == []
            return
        frame = receive_frame(connected)
    assert frame is not None, f"{case} is hung up on: {message}"
    reader = Reader(memoryview(frame), 4)
    response = RESPONSES[case.message.API_KEY]
    if case.version >= response.FLEXIBLE_SINCE and case.module != "api_versions":
        skip_tags(reader)
    decode(response, case.version, reader)
    assert int.from_bytes(frame[:4], "big") == 4711


@pytest.mark.parametrize("round_", range(4))
def test_any_well_formed_request_of_every_version_is_answered(victim: Victim, round_: int) -> None:
    with Client(victim.address) as client:
        (there,) = client.request(MetadataRequest(topics=[MetadataRequestTopic(name="there")]), MetadataResponse).topics
        PlausibleSampler.topic_id = there.topic_id
    failures = []
    for case in REQUESTS:
        sampler = PlausibleSampler(f"{case} {round_}", full=round_ % 2 == 0)
        message = sampler.message(case.message, case.version)
        try:
            check_answer(victim, case, message)
        except (AssertionError, TimeoutError) as error:
            failures.append(f"{error!r}: {message}")
    assert failures == []


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_metadata_of_an_unknown_topic_id_is_answered(victim: Victim, version: int) -> None:
    """Its response has no name, which versions 10 and 11 cannot express."""
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"\x07" * 16, name=None)])
    case = next(case for case in REQUESTS if str(case) == f"MetadataRequest-v{version}")
    check_answer(victim, case, request)
