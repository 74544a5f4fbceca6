"""Kafka's Java clients while connections are cut and while the broker is restarted."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from logbrook import Broker
from tests.interop.java.cutting_proxy import CuttingProxy
from tests.interop.java.tool_host import ToolHost

CUTS = 20
RESTARTS = 3


def test_batches_that_an_idempotent_producer_retries_after_a_cut_are_written_once(scenarios_host: ToolHost) -> None:
    with (
        CuttingProxy(cuts=CUTS, every_bytes=8000) as proxy,
        Broker(settings={"network": {"advertise": proxy.address}}) as broker,
    ):
        proxy.target = broker.bootstrap_servers
        run = scenarios_host.run("Scenario", "Interruptions", "everyRecordIsWrittenOnceAndInOrder", proxy.address)
        assert run.code == 0, str(run)
        assert proxy.cuts_done == CUTS


def test_a_producer_continues_after_a_delivery_timeout(scenarios_host: ToolHost) -> None:
    with (
        CuttingProxy(stall_at_bytes=30_000, stall_s=1.5) as proxy,
        Broker(settings={"network": {"advertise": proxy.address}}) as broker,
    ):
        proxy.target = broker.bootstrap_servers
        run = scenarios_host.run("Scenario", "Interruptions", "aProducerGoesOnAfterItGaveRecordsUp", proxy.address)
        assert run.code == 0, str(run)


def test_a_producer_and_a_group_continue_across_restarts(scenarios_host: ToolHost, tmp_path: Path) -> None:
    with CuttingProxy() as proxy, ThreadPoolExecutor(1) as thread:
        broker = Broker(data=str(tmp_path / "data"), settings={"network": {"advertise": proxy.address}})
        broker.start()
        try:
            proxy.target = broker.bootstrap_servers
            scenario = ("Scenario", "Interruptions", "aProducerAndItsGroupGoOn", proxy.address)
            running = thread.submit(scenarios_host.run, *scenario)
            for _ in range(RESTARTS):
                proxy.wait_for_bytes(20_000)
                assert not running.done(), str(running.result())
                broker.stop()
                broker.start()
                proxy.target = broker.bootstrap_servers
            assert running.result().code == 0, str(running.result())
        finally:
            broker.stop()
