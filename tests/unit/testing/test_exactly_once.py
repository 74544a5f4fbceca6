"""What a campaign says of an output that is right, and of one that is not. Spark has no part in this."""

from pathlib import Path

from logbrook.client import Client, Producer
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.exactly_once.campaign import PARTITIONS, Campaign, Plan
from logbrook.testing.exactly_once.driver import OUTPUT
from logbrook.testing.exactly_once.scene import Scene, Step, Writing


def write_output(campaign: Campaign, partition: int, numbers: list[int]) -> None:
    with Client(campaign.broker.bootstrap_servers) as client, Producer(client) as producer:
        batch = build_batch(
            [Record(value=b"%d" % number) for number in numbers],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        producer.send(OUTPUT, partition, batch)


def test_lost_doubled_and_disordered_records_are_found() -> None:
    with Campaign(Plan(0)) as campaign:
        campaign.write_input()
        expected = list(range(campaign.records_written))
        assert len(expected) > 100
        for partition in range(PARTITIONS):
            write_output(campaign, partition, expected[:-1])
        assert not campaign.compare().is_good
        assert len(campaign.outcome.findings) == PARTITIONS
        assert "1 are lost" in campaign.outcome.findings[0]
        campaign.outcome.findings.clear()
        for partition in range(PARTITIONS):
            write_output(campaign, partition, expected[-1:])
        assert campaign.compare().is_good
        write_output(campaign, 1, [5])
        (finding,) = campaign.compare().findings
        assert finding.startswith("partition 1: ")
        assert "1 are there more than once [5]" in finding
    with Campaign(Plan(0)) as campaign:
        campaign.write_input()
        write_output(campaign, 0, expected)
        write_output(campaign, 1, [1, 0, *expected[2:]])
        (finding,) = campaign.compare().findings
        assert "partition 1: " in finding


def test_an_order_is_for_one_worker(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert not scene.take_order(Step.AFTER_END)
    scene.order(Step.AFTER_END)
    assert not scene.has_been_obeyed(Step.AFTER_END)
    assert [scene.take_order(Step.BEFORE_END), scene.take_order(Step.AFTER_END)] == [False, True]
    assert scene.has_been_obeyed(Step.AFTER_END)
    assert not scene.take_order(Step.AFTER_END)
    scene.order(Step.BEFORE_END)
    scene.withdraw_orders()
    assert not scene.take_order(Step.BEFORE_END)


def test_writes_are_noted_in_order(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.begun() == []
    writings = [Writing(1, 0, 0), Writing(2, 0, 1), Writing(1, 1, 0)]
    for writing in writings:
        scene.note_begin(writing)
    assert Scene(tmp_path).begun() == writings
