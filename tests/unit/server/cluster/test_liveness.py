"""Brokers whose address refuses connections: how long that counts, and what ends it."""

import asyncio
from collections.abc import Awaitable, Callable

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.core.cluster.image import BrokerRegistration, ClusterImage, broker_key, encode_broker
from logbrook.model.identifiers import BrokerId
from logbrook.ports.metadata_store import NO_LEASE, Revision, StoreEntry
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.liveness import BrokerLiveness
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.testing.simulation.broker import LoopClock
from logbrook.testing.simulation.loop import SimulationLoop
from logbrook.testing.simulation.network import SimulatedNetwork

TWO = BrokerId(2)


class World:
    """Broker 2 as another one sees it: `error` is what a connection to it raises."""

    def __init__(self, loop: SimulationLoop) -> None:
        self.image = ClusterImage()
        self.error: OSError | None = None
        self.attempts = 0
        self.calls = 0
        self.register(5)
        self.liveness = BrokerLiveness(loop, LoopClock(loop), self.image, self._connect, DEFAULT_LISTENER)
        self.liveness.on_gone = self._on_gone

    def register(self, revision: int, *, is_stopping: bool = False) -> None:
        registration = BrokerRegistration("broker-2", 9092, is_stopping=is_stopping)
        value = encode_broker(registration)
        entry = StoreEntry(value, Revision(revision), Revision(revision), 1, NO_LEASE)
        self.image.replay(broker_key(TWO), entry)

    async def _connect(self, _host: str, _port: int) -> PeerConnection:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        return PeerConnection("broker-1")

    def _on_gone(self) -> None:
        self.calls += 1


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    loop = SimulationLoop(SimulatedNetwork())

    async def main() -> None:
        world = World(loop)
        await pause(10)
        await scenario(world)
        await world.liveness.stop()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


def refused() -> OSError:
    return ConnectionRefusedError(111, "refused")


def test_a_broker_whose_address_refuses_connections_is_gone_for_a_while() -> None:
    async def scenario(world: World) -> None:
        assert TWO in world.liveness
        world.liveness.on_unreachable(TWO, refused())
        assert (world.liveness.gone(), world.calls) == ({TWO}, 1)
        assert TWO not in world.liveness
        await pause(3)
        assert world.liveness.gone() == set()
        assert TWO in world.liveness

    run(scenario)


def test_a_broker_that_cannot_be_reached_may_be_alive() -> None:
    async def scenario(world: World) -> None:
        world.liveness.on_unreachable(TWO, TimeoutError())
        assert (world.liveness.gone(), world.calls) == (set(), 0)

    run(scenario)


def test_a_new_registration_or_a_fetch_ends_it() -> None:
    async def scenario(world: World) -> None:
        world.liveness.on_unreachable(TWO, refused())
        world.register(6)
        assert world.liveness.gone() == set()
        world.liveness.on_unreachable(TWO, refused())
        world.liveness.on_heard(TWO)
        assert world.liveness.gone() == set()

    run(scenario)


def test_a_broker_that_stops_cannot_be_in_sync() -> None:
    async def scenario(world: World) -> None:
        world.register(5, is_stopping=True)
        assert TWO not in world.liveness
        assert world.liveness.gone() == set()
        assert BrokerId(3) not in world.liveness

    run(scenario)


def test_only_a_follower_that_has_not_fetched_for_a_while_is_tried() -> None:
    async def scenario(world: World) -> None:
        world.error = refused()
        world.liveness.on_heard(TWO)
        await pause(0.6)
        world.liveness.try_if_silent(TWO, has_records=False)
        await pause(0.1)
        assert world.attempts == 0
        await pause(0.1)
        world.liveness.try_if_silent(TWO, has_records=False)
        await pause(0.1)
        assert (world.attempts, world.liveness.gone()) == (1, {TWO})

    run(scenario)


def test_a_follower_is_tried_sooner_while_writes_wait_for_it_but_not_again_and_again() -> None:
    async def scenario(world: World) -> None:
        world.liveness.on_heard(TWO)
        for _ in range(8):
            await pause(0.1)
            world.liveness.try_if_silent(TWO, has_records=True)
        # Four attempts that take 0.2 s, and then none for 0.5 s.
        assert world.attempts == 4

    run(scenario)


def test_a_process_that_closes_its_connections_before_its_socket_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        world.liveness.try_address(TWO)
        world.liveness.try_address(TWO)
        await pause(0.01)
        assert (world.attempts, world.liveness.gone()) == (1, set())
        world.error = refused()
        await pause(0.1)
        assert (world.attempts, world.liveness.gone()) == (2, {TWO})

    run(scenario)


def test_a_follower_that_fetches_again_is_not_tried_any_more() -> None:
    async def scenario(world: World) -> None:
        world.liveness.try_address(TWO)
        await pause(0.01)
        world.liveness.on_heard(TWO)
        await pause(1)
        assert world.attempts == 1

    run(scenario)
