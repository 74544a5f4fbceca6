"""The verdict of an exactly-once campaign on correct and incorrect outputs. Runs without Spark."""

from pathlib import Path

from logbrook.client import Client, Producer
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.exactly_once.campaign import PARTITIONS, ExactlyOnceCampaign, ExactlyOncePlan
from logbrook.testing.exactly_once.control_files import ControlFiles, KillPoint, TaskWrite
from logbrook.testing.exactly_once.driver import OUTPUT


def write_output(campaign: ExactlyOnceCampaign, partition: int, numbers: list[int]) -> None:
    with Client(campaign.broker.bootstrap_servers) as client, Producer(client) as producer:
        batch = build_batch(
            [Record(value=b"%d" % number) for number in numbers],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        producer.send(OUTPUT, partition, batch)


def test_lost_doubled_and_disordered_records_are_found() -> None:
    with ExactlyOnceCampaign(ExactlyOncePlan(0)) as campaign:
        campaign.write_input()
        expected = list(range(campaign.records_written))
        assert len(expected) > 100
        for partition in range(PARTITIONS):
            write_output(campaign, partition, expected[:-1])
        assert not campaign.compare().is_good
        assert len(campaign.outcome.differences) == PARTITIONS
        assert "1 are lost" in campaign.outcome.differences[0]
        campaign.outcome.differences.clear()
        for partition in range(PARTITIONS):
            write_output(campaign, partition, expected[-1:])
        assert campaign.compare().is_good
        write_output(campaign, 1, [5])
        (finding,) = campaign.compare().differences
        assert finding.startswith("partition 1: ")
        assert "1 are there more than once [5]" in finding
    with ExactlyOnceCampaign(ExactlyOncePlan(0)) as campaign:
        campaign.write_input()
        write_output(campaign, 0, expected)
        write_output(campaign, 1, [1, 0, *expected[2:]])
        (finding,) = campaign.compare().differences
        assert "partition 1: " in finding


def test_an_order_is_for_one_worker(tmp_path: Path) -> None:
    scene = ControlFiles(tmp_path)
    assert not scene.take_order(KillPoint.AFTER_END)
    scene.order(KillPoint.AFTER_END)
    assert not scene.is_carried_out(KillPoint.AFTER_END)
    assert [scene.take_order(KillPoint.BEFORE_END), scene.take_order(KillPoint.AFTER_END)] == [False, True]
    assert scene.is_carried_out(KillPoint.AFTER_END)
    assert not scene.take_order(KillPoint.AFTER_END)
    scene.order(KillPoint.BEFORE_END)
    scene.withdraw_orders()
    assert not scene.take_order(KillPoint.BEFORE_END)


def test_writes_are_noted_in_order(tmp_path: Path) -> None:
    scene = ControlFiles(tmp_path)
    assert scene.writes() == []
    writings = [TaskWrite(1, 0, 0), TaskWrite(2, 0, 1), TaskWrite(1, 1, 0)]
    for writing in writings:
        scene.record_write(writing)
    assert ControlFiles(tmp_path).writes() == writings
