"""Brokers whose process has ended although their lease has not: their address refuses connections.

A registration stays for the time of its lease after its broker was killed. The kernel refuses connections to a port on
which nobody listens, so a refused connection tells the same at once. It counts for a while, and only until the broker
fetches or registers again. Leaders need it to drop a follower from the ISR, for which writes with acks=all wait, and
followers to take over from their leader. Both are changes that the store decides; a broker that is declared dead and is
not loses no records, it only has to be elected or get in sync again.

An address is tried when a follower closes a connection on which its fetch waits, and when it has not fetched for longer
than a fetch waits, or for 0.2 s while writes wait for it. A leader that closes the connection of a fetcher is suspected
until that has tried to connect again.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable

from logbrook.core.cluster.image import ClusterImage
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerEpoch, BrokerId
from logbrook.ports import Clock
from logbrook.server.cluster.background import BackgroundTasks, pause
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.replica_fetcher import Connect

# A refused connection counts for this long.
_GONE_S = 2.0
# A follower that has not fetched for this long is tried. Fetches wait for 0.5 s; with records to fetch they do not.
_SILENT_S = 0.75
_SILENT_S_BUSY = 0.2
# One that is alive is not tried again for this long.
_TRIED_S = 0.5
# A process that ends may close its connections before the socket on which it listens.
_ATTEMPTS = 4
_ATTEMPT_PAUSE_S = 0.05
_CONNECT_S_MAX = 1.0
_SETTLE_S_MIN, _SETTLE_S_MAX = 0.01, 0.1

_logger = event_logger(__name__)


class BrokerLiveness:
    """One per broker, on the event loop. `on_gone()` is called when a process is found to have ended.

    As a container it has the brokers that can be in sync: registered, not stopping, and not gone.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, image: ClusterImage, connect: Connect, listener: str
    ) -> None:
        """`listener` is that for the brokers of the cluster."""
        self.on_gone: Callable[[], None] = lambda: None
        self._clock = clock
        self._image = image
        self._connect = connect
        self._listener = listener
        self._tasks = BackgroundTasks(loop, "the liveness of brokers")
        # The life of a broker that has ended, and until when that counts.
        self._gone: dict[BrokerId, tuple[BrokerEpoch, float]] = {}
        self._heard_s: defaultdict[BrokerId, float] = defaultdict(lambda: -math.inf)
        self._tried_s: defaultdict[BrokerId, float] = defaultdict(lambda: -math.inf)
        self._trying: set[BrokerId] = set()
        self._suspected: set[BrokerId] = set()
        self._is_stopped = False

    async def stop(self) -> None:
        self._is_stopped = True
        await self._tasks.stop()

    def __contains__(self, broker_id: object) -> bool:
        if not isinstance(broker_id, int):
            return False
        broker = self._image.brokers.get(BrokerId(broker_id))
        return broker is not None and not broker.registration.is_stopping and broker_id not in self.gone()

    def gone(self) -> set[BrokerId]:
        """Return the registered brokers whose process has ended."""
        now_s = self._clock.monotonic_s()
        for broker_id, (epoch, until_s) in [*self._gone.items()]:
            broker = self._image.brokers.get(broker_id)
            if until_s <= now_s or broker is None or broker.epoch != epoch:
                del self._gone[broker_id]
        return set(self._gone)

    async def settle(self) -> None:
        """Wait until it is known whether brokers that have just closed their connections are gone.

        A client that has lost its leader asks for another one at the same time as this broker learns of it, so this
        waits for a moment in any case.
        """
        until_s = self._clock.monotonic_s() + _SETTLE_S_MAX
        await pause(_SETTLE_S_MIN)
        while self._suspected and self._clock.monotonic_s() < until_s:
            await pause(_SETTLE_S_MIN)

    def on_connected(self, connection: PeerConnection, broker_id: BrokerId) -> None:
        """A fetcher has connected to a broker."""
        self._suspected.discard(broker_id)
        connection.on_lost = lambda: self._suspected.add(broker_id)

    def on_unreachable(self, broker_id: BrokerId, error: OSError) -> None:
        """A fetcher cannot connect to a broker. Only a refused connection says that its process has ended."""
        if isinstance(error, ConnectionRefusedError):
            self._on_refused(broker_id)
        self._suspected.discard(broker_id)

    def _on_refused(self, broker_id: BrokerId) -> None:
        broker = self._image.brokers.get(broker_id)
        if broker is None or self._is_stopped:
            return
        if broker_id not in self._gone:
            _logger.warning("broker gone", broker_id=broker_id, broker_epoch=broker.epoch)
        self._gone[broker_id] = (broker.epoch, self._clock.monotonic_s() + _GONE_S)
        self.on_gone()

    def on_heard(self, broker_id: BrokerId) -> None:
        """A broker has fetched: its process runs."""
        self._heard_s[broker_id] = self._clock.monotonic_s()
        self._gone.pop(broker_id, None)

    def try_if_silent(self, broker_id: BrokerId, *, has_records: bool) -> None:
        """Try the address of a follower that has not fetched for a while. `has_records` if there are some to fetch."""
        now_s = self._clock.monotonic_s()
        silent_s = _SILENT_S_BUSY if has_records else _SILENT_S
        if now_s - self._heard_s[broker_id] > silent_s and now_s - self._tried_s[broker_id] > _TRIED_S:
            self.try_address(broker_id)

    def try_address(self, broker_id: BrokerId) -> None:
        """Find out whether the address of a broker refuses connections."""
        if not self._is_stopped and broker_id not in self._trying and broker_id not in self._gone:
            self._trying.add(broker_id)
            self._tasks.spawn(self._try(broker_id))

    async def _try(self, broker_id: BrokerId) -> None:
        began_s = self._clock.monotonic_s()
        try:
            for _ in range(_ATTEMPTS):
                broker = self._image.brokers.get(broker_id)
                address = None if broker is None else broker.registration.address(self._listener)
                if address is None or self._heard_s[broker_id] > began_s:
                    return
                async with asyncio.timeout(_CONNECT_S_MAX):
                    connection = await self._connect(*address)
                connection.close()
                await pause(_ATTEMPT_PAUSE_S)
        except ConnectionRefusedError:
            self._on_refused(broker_id)
        except OSError:
            # Unreachable, which says nothing about its process.
            pass
        finally:
            self._trying.discard(broker_id)
            self._tried_s[broker_id] = self._clock.monotonic_s()
