"""A broker in a simulation: it runs on the simulation's loop and network, with a disk that can lose unsynced bytes."""

import asyncio
from collections.abc import Callable
from functools import cache

from logbrook.config import BrokerConfig, Durability
from logbrook.server.broker import BrokerServer
from logbrook.server.cluster.node import ClusterLink
from logbrook.storage.wal import Wal
from logbrook.testing.broker_faults import DiskFaults, FaultableFiles
from logbrook.testing.crash_states import materialise
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.recording_files import RecordingFiles
from logbrook.testing.seeded_random import SeededRandom
from logbrook.testing.simulation.loop import SimulationLoop
from logbrook.testing.variants import Variant

PORT = 9092
_EPOCH_MS = 1_700_000_000_000


class LoopClock:
    """The `Clock` port on the time of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return _EPOCH_MS + int(1000 * self._loop.time())

    def monotonic_s(self) -> float:
        return self._loop.time()


class LoopCommitter:
    """Commits the write-ahead log on the event loop, `latency_s()` after the first append that is pending."""

    def __init__(self, wal: Wal, loop: asyncio.AbstractEventLoop, latency_s: Callable[[], float]) -> None:
        self._wal = wal
        self._loop = loop
        self._latency_s = latency_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._wal.on_pending = self._on_pending
        self._on_pending()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wal.on_pending = _ignore
        self._wal.commit()

    def _on_pending(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._latency_s(), self._commit)

    def _commit(self) -> None:
        self._timer = None
        self._wal.commit()


class SimulatedBroker:
    """One broker and its disk, at `host`:9092. `sync_latency_s()` is asked for each sync of the write-ahead log."""

    def __init__(
        self,
        loop: SimulationLoop,
        host: str = "broker",
        *,
        config: BrokerConfig | None = None,
        seed: int = 0,
        sync_latency_s: Callable[[], float] = lambda: 0.001,
        new_link: Callable[[], ClusterLink] | None = None,
    ) -> None:
        """`new_link` makes the access to a cluster, for each start."""
        self._new_link = new_link
        self.host = host
        self.files = RecordingFiles()
        self.disk_faults = DiskFaults()
        self.is_up = False
        self._loop = loop
        self._seed = seed
        self._starts = 0
        self._sync_latency_s = sync_latency_s
        self._config = config or simulation_config(host)
        self._server: BrokerServer | None = None

    @property
    def server(self) -> BrokerServer:
        assert self._server is not None, "the broker has not been started"
        return self._server

    async def start(self) -> None:
        """Recover the disk and listen. Raises StorageError or OSError."""
        self._starts += 1
        self._server = BrokerServer(
            self._config,
            files=FaultableFiles(self.files, self.disk_faults),
            clock=LoopClock(self._loop),
            random=SeededRandom(f"{self._seed}/{self.host}/{self._starts}"),
            new_committer=lambda wal, loop: LoopCommitter(wal, loop, self._sync_latency_s),
            cluster=None if self._new_link is None else self._new_link(),
        )
        await self._server.start()
        self.is_up = True

    async def stop(self) -> None:
        """Stop as on SIGTERM."""
        self.is_up = False
        await self.server.stop()

    async def kill(self, variant: Variant = Variant.KEPT) -> None:
        """End the process now. `variant` says what becomes of unsynced bytes; KEPT is a kill without a power loss."""
        self.is_up = False
        journal = self.files.journal
        disk = materialise(journal, len(journal.ops), variant, self._seed + self._starts)
        self._loop.network.take_down(self.host)
        await self.server.abandon()
        self._loop.network.bring_up(self.host)
        # Whatever the dead process still wrote is not on this disk.
        self.files = RecordingFiles(MemoryFiles(disk))

    def replace_disk(self) -> None:
        """Start with an empty disk next time. Call it after a kill."""
        assert not self.is_up
        self.files = RecordingFiles()


@cache
def simulation_config(
    host: str,
    durability: Durability = Durability.FSYNC,
    *,
    node_id: int = 1,
    session_ms_min: int = 6_000,
    rebalance_delay_ms: int = 3_000,
    maintenance_ms: int = 5_000,
) -> BrokerConfig:
    """Return settings for simulations: durable appends, small files, no HTTP listener.

    They are immutable, and checked only once in a campaign.
    """
    return BrokerConfig(
        data="simulated",
        node_id=node_id,
        network={"listen": f"{host}:{PORT}"},  # type: ignore[arg-type]
        metrics={"listen": ""},  # type: ignore[arg-type]
        storage={"wal_file_bytes": 64 << 10, "durability": durability},  # type: ignore[arg-type]
        maintenance={"interval_ms": maintenance_ms},  # type: ignore[arg-type]
        groups={  # type: ignore[arg-type]
            "session_timeout_ms_min": session_ms_min,
            "initial_rebalance_delay_ms": rebalance_delay_ms,
        },
    )


def _ignore() -> None:
    """Hook of a write-ahead log without a committer."""
