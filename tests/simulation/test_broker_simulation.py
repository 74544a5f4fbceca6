"""Whole brokers in simulated time: the loop, the network, and random schedules with faults."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from logbrook.config import Durability
from logbrook.core.transactions.messages import TransactionMarkers
from logbrook.model import TopicPartition
from logbrook.records.control import build_marker
from logbrook.server.coordinators import marker_writer
from logbrook.server.coordinators.marker_writer import MarkerWriter
from logbrook.storage.log_reading import ReadableLog
from logbrook.storage.producer_state import ProducerStateTable
from logbrook.testing.simulation import loop as loop_module
from logbrook.testing.simulation.__main__ import main
from logbrook.testing.simulation.broker import SimulatedBroker
from logbrook.testing.simulation.campaign import SimulationRun, run_seeds
from logbrook.testing.simulation.client import SimulatedClient
from logbrook.testing.simulation.loop import SimulationLoop, SimulationStuckError
from logbrook.testing.simulation.network import SimulatedNetwork


def simulate(check: Callable[[SimulationLoop], Coroutine[Any, Any, None]], latency_s: float = 0.5) -> None:
    loop_module.simulate(check, SimulationLoop(SimulatedNetwork(lambda: latency_s)))


# Schedules


def test_random_schedules_break_no_promise() -> None:
    assert run_seeds(0, 4, seconds=10) is None


@pytest.mark.long
def test_many_random_schedules_break_no_promise() -> None:
    assert run_seeds(10_000, 1_000) is None


def test_a_seed_decides_everything() -> None:
    first, second, other = SimulationRun(3, 5), SimulationRun(3, 5), SimulationRun(4, 5)
    for run in (first, second, other):
        run.run()
    assert first.events == second.events != other.events
    assert first.history == second.history


def test_acknowledgements_before_the_sync_are_found() -> None:
    assert run_seeds(0, 20, durability=Durability.INTERVAL) is not None


def test_reads_of_uncommitted_records_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadableLog, "high_watermark", property(lambda log: log.log_end_offset))
    assert run_seeds(0, 20) is not None


def test_a_producer_state_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStateTable, "check", lambda table, headers: None)
    failure = run_seeds(4, 40)
    assert failure is not None
    assert "has a record twice" in str(failure)


def test_a_marker_that_is_not_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MarkerWriter.write

    def skips_the_second_partition(
        writer: MarkerWriter, markers: TransactionMarkers, partition: TopicPartition
    ) -> "asyncio.Future[None]":
        if partition.partition != 1:
            return write(writer, markers, partition)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    monkeypatch.setattr(MarkerWriter, "write", skips_the_second_partition)
    assert run_seeds(0, 2) is not None


def test_an_aborted_transaction_that_is_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def commits_always(*producer: Any, **arguments: Any) -> bytearray:
        return build_marker(*producer, **(arguments | {"is_commit": True}))

    monkeypatch.setattr(marker_writer, "build_marker", commits_always)
    failure = run_seeds(0, 5)
    assert failure is not None
    assert "were aborted, and some are visible" in str(failure)


def test_the_command_reports_the_number_of_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--seconds", "2", "--jobs", "1"]) == 0
    output = capsys.readouterr().out
    assert "0 failures; next seed 1, 1 schedules of the campaign" in output
    assert output.endswith("continue with SEED=1\n")


def test_the_command_prints_the_schedule_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def judge(_run: SimulationRun) -> None:
        raise AssertionError("a record is lost")

    monkeypatch.setattr(SimulationRun, "_judge", judge)
    assert main(["--seed", "3", "--seeds", "2", "--seconds", "10", "--jobs", "1"]) == 1
    output = capsys.readouterr().out
    assert " acknowledged, " in output
    assert "\nseed 3: a record is lost\n" in output
    assert "\nseeds that failed: 3\n" in output


# The loop


def test_time_jumps_to_the_next_timer() -> None:
    async def check(loop: SimulationLoop) -> None:
        over = asyncio.Event()
        loop.call_later(3_600, over.set)
        await over.wait()
        assert loop.time() == pytest.approx(3_600)

    simulate(check)


def test_waits_below_float_resolution_end() -> None:
    async def check(loop: SimulationLoop) -> None:
        await passes(loop, 1_000)
        until_s = loop.time() + 0.001
        while (remaining_s := until_s - time.monotonic()) > 0:
            over = asyncio.Event()
            loop.call_later(remaining_s / 2, over.set)
            await over.wait()

    before_s = time.monotonic()
    simulate(check)
    assert time.monotonic() - before_s < 1_000, "the real clock is back"


def test_tasks_that_all_wait_forever_are_reported() -> None:
    async def check(_loop: SimulationLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuckError):
        simulate(check)


def test_work_for_an_executor_runs_on_the_loop() -> None:
    async def check(loop: SimulationLoop) -> None:
        assert await loop.run_in_executor(None, sum, [1, 2]) == 3
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    simulate(check)


# The network


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.received: list[tuple[float, bytes]] = []
        self.error: Exception | None = None
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received.append((asyncio.get_running_loop().time(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost.set()


async def passes(loop: SimulationLoop, seconds: float) -> None:
    over = asyncio.Event()
    loop.call_later(seconds, over.set)
    await over.wait()


def test_bytes_arrive_in_order_after_the_latency() -> None:
    async def check(loop: SimulationLoop) -> None:
        await loop.create_server(Echo, "server", 1)
        transport, recorder = await loop.create_connection(Recorder, "server", 1)
        started_s = loop.time()
        transport.write(b"a")
        transport.writelines([b"b", memoryview(b"c")])
        await passes(loop, 5)
        assert recorder.received == [(started_s + 1.0, b"a"), (started_s + 1.0, b"bc")]

    simulate(check)


def test_nothing_passes_between_hosts_that_are_cut_off() -> None:
    async def check(loop: SimulationLoop) -> None:
        await loop.create_server(Echo, "server", 1)
        transport, recorder = await loop.create_connection(Recorder, "server", 1, local_addr=("a", 0))
        loop.network.cut_off("a", "server")
        transport.write(b"late")
        with pytest.raises(TimeoutError):
            await loop.create_connection(Recorder, "server", 1, local_addr=("a", 0))
        await loop.create_connection(Recorder, "server", 1, local_addr=("b", 0))
        await passes(loop, 60)
        assert recorder.received == []
        loop.network.reconnect("a", "server")
        await passes(loop, 5)
        assert [data for _, data in recorder.received] == [b"late"]

    simulate(check)


def test_a_reset_breaks_connections_and_stops_servers() -> None:
    async def check(loop: SimulationLoop) -> None:
        await loop.create_server(Echo, "server", 1)
        _, recorder = await loop.create_connection(Recorder, "server", 1)
        loop.network.reset("server")
        await recorder.lost.wait()
        assert isinstance(recorder.error, ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "server", 1)

    simulate(check)


def test_a_host_that_is_taken_down_connects_to_nobody() -> None:
    async def check(loop: SimulationLoop) -> None:
        server = await loop.create_server(asyncio.Protocol, "server", 1)
        loop.network.take_down("client")
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(asyncio.Protocol, "server", 1)
        loop.network.bring_up("client")
        transport, _ = await loop.create_connection(asyncio.Protocol, "server", 1)
        transport.close()
        server.close()

    simulate(check)


def test_a_close_delivers_what_was_sent_before() -> None:
    async def check(loop: SimulationLoop) -> None:
        recorder = Recorder()
        await loop.create_server(lambda: recorder, "server", 1)
        transport, _ = await loop.create_connection(Recorder, "server", 1)
        transport.write(b"last")
        transport.close()
        await recorder.lost.wait()
        assert [data for _, data in recorder.received] == [b"last"]
        assert recorder.error is None

    simulate(check)


def test_an_address_is_used_once() -> None:
    async def check(loop: SimulationLoop) -> None:
        server = await loop.create_server(Echo, "server", 1)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(Echo, "server", 1)
        server.close()
        await loop.create_server(Echo, "server", 1)

    simulate(check)


# Brokers


def test_a_broker_stops_and_starts_again() -> None:
    async def check(loop: SimulationLoop) -> None:
        broker = SimulatedBroker(loop)
        await broker.start()
        await broker.stop()
        with pytest.raises(ConnectionRefusedError):
            await SimulatedClient.connect("broker", 9092)
        await broker.start()
        client = await SimulatedClient.connect("broker", 9092)
        client.close()
        await broker.stop()

    simulate(check, latency_s=0.001)
