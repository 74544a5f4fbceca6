"""Kafka's Java clients in their newest version; the scenarios are in `scenarios/`."""

import re
from pathlib import Path

import pytest

from logbrook import Broker
from tests.interop.java.tool_host import ToolHost

SCENARIOS = [
    (path.stem, name)
    for path in sorted((Path(__file__).parent / "scenarios").glob("*.java"))
    if path.stem != "Interruptions"
    for name in re.findall(r"^    static void (\w+)\(Kit kit\)", path.read_text(), re.MULTILINE)
]
# Warnings of the client that the scenario provokes.
COMPLAINTS = {
    "aBatchThatIsTooLargeIsSplitByTheProducer": "MESSAGE_TOO_LARGE",
    "aTransactionThatTakesTooLongIsAborted": "PRODUCER_FENCED|ProducerFenced|InvalidProducerEpoch|fatal|INVALID_",
    "aZombieIsFenced": "PRODUCER_FENCED|ProducerFenced|InvalidProducerEpoch|fatal|INVALID_PRODUCER_EPOCH",
    "adminsSeeTransactions": "PRODUCER_FENCED|ProducerFenced|InvalidProducerEpoch|fatal",
    "aMemberThatDoesNotPollIsOutAndCannotCommit": "poll timeout has expired",
    "clientsSurviveThatATopicIsMadeAnew": "UNKNOWN_TOPIC_ID|unknown topic ID|UnknownTopicIdException",
    "ofTwoWithTheSameInstanceTheLaterOneStays": "fenced group.instance.id",
    "recordsAreDeletedUpToAnOffset": "OFFSET_OUT_OF_RANGE",
    "topicsThatMatchAPatternAreFoundLater": "unknown topic|UNKNOWN_TOPIC",
    "whatIsNotServedIsRefusedAtOnce": "CONSUMER_GROUP_HEARTBEAT|transitioned to fatal state",
}


def test_every_complaint_belongs_to_a_scenario() -> None:
    assert COMPLAINTS.keys() <= {name for _, name in SCENARIOS}
    assert len(SCENARIOS) > 20


@pytest.mark.parametrize(("file", "scenario"), SCENARIOS, ids=[name for _, name in SCENARIOS])
def test_the_java_clients(scenarios_host: ToolHost, broker: Broker, file: str, scenario: str) -> None:
    run = scenarios_host.run("Scenario", file, scenario, broker.bootstrap_servers)
    run.check(allowed=COMPLAINTS.get(scenario, ""))
