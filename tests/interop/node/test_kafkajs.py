"""kafkajs, a client that shares no code with any other; the scenarios are in the scripts beside this file."""

import re
from pathlib import Path

import pytest

from logbrook import Broker
from tests.interop.java.cutting_proxy import CuttingProxy
from tests.interop.node.node_scenarios import HERE, NodeScenarios

CUTS = 12
FILES = ("records", "groups", "administration", "transactions")
# Scenarios that need more than a broker and have their own tests below, or that are part of another scenario.
APART = {
    "belongToAGroup",
    "halfIsReadAndCommitted",
    "idempotentMessagesAreWrittenOnceThroughCuts",
    "theOtherHalfIsReadAfterwards",
}


def scenarios_of(file: str) -> list[str]:
    exported = re.search(r"^module\.exports = \{(.*?)\}", (HERE / f"{file}.js").read_text(), re.MULTILINE | re.DOTALL)
    assert exported is not None
    return [name for name in re.findall(r"\w+", exported[1]) if name not in APART]


SCENARIOS = [(file, name) for file in FILES for name in scenarios_of(file)]
# Errors that the scenario provokes, or rebalances, which the client logs as errors.
COMPLAINTS = {
    "aZombieIsFenced": "newer producer|old epoch|EndTxn",
    "largeMessagesPassWhereTheTopicAllowsThem": "larger than the max message size|Response Produce",
    "membersWithDifferentAssignersAreRefused": "supported protocols are incompatible",
    "partitionsFollowMembersThatJoinLeaveAndDie": "rebalancing",
    "settingsAreDescribedAndReplaced": "Configuration is invalid",
    "topicsAreMadeDescribedGrownAndDeleted": "Topic creation errors",
    "whatIsNotThereIsRefused": "does not host|Limiting retries",
}


def test_every_complaint_belongs_to_a_scenario() -> None:
    assert COMPLAINTS.keys() <= {name for _, name in SCENARIOS}
    assert len(SCENARIOS) > 10


@pytest.mark.parametrize(("file", "scenario"), SCENARIOS, ids=[name for _, name in SCENARIOS])
def test_kafkajs(node: NodeScenarios, broker: Broker, file: str, scenario: str) -> None:
    node.run(file, scenario, broker.bootstrap_servers).check(COMPLAINTS.get(scenario, ""))


def test_batches_that_an_idempotent_kafkajs_producer_retries_after_a_cut_are_written_once(node: NodeScenarios) -> None:
    with (
        CuttingProxy(cuts=CUTS, every_bytes=6000) as proxy,
        Broker(settings={"network": {"advertise": proxy.address}}) as broker,
    ):
        proxy.target = broker.bootstrap_servers
        run = node.run("records", "idempotentMessagesAreWrittenOnceThroughCuts", proxy.address)
        assert run.code == 0, run.said
        assert proxy.cuts_done == CUTS


def test_offsets_committed_by_kafkajs_survive_a_restart(node: NodeScenarios, tmp_path: Path) -> None:
    for scenario in ("halfIsReadAndCommitted", "theOtherHalfIsReadAfterwards"):
        with Broker(data=str(tmp_path / "data")) as broker:
            node.run("groups", scenario, broker.bootstrap_servers).check()
