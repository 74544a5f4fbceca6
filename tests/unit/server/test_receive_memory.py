"""Memory for requests is shared between addresses and connections, and one request at a time may exceed its share."""

import random
from typing import cast

import pytest

from logbrook.server.connection import ServerConnection
from logbrook.server.receive_memory import ReceiveMemory
from tests.unit.server.shell_kit import MIB


class Peer:
    """The attributes of a connection that its memory depends on."""

    def __init__(self, address: str, frame_mib: float = 99) -> None:
        self.peer = address
        self.frame_bytes = int(frame_mib * MIB)
        self.held_bytes = 0
        self.growth_bytes = 0
        self.is_reading = True
        self.is_exempt = False


class Memory:
    """A bound of 64 MiB, and peers that take memory."""

    def __init__(self) -> None:
        self.scarcity: list[bool] = []
        self.memory = ReceiveMemory(64 * MIB, self.scarcity.append)

    def take(self, peer: Peer, mib: int) -> bool:
        """Return True if the peer gets this much more memory."""
        return self.take_bytes(peer, mib * MIB)

    def take_bytes(self, peer: Peer, more_bytes: int) -> bool:
        peer.growth_bytes = more_bytes
        return self.memory.reserve(cast(ServerConnection, peer), more_bytes)

    def free(self, peer: Peer) -> None:
        self.memory.remove(cast(ServerConnection, peer))

    def resumed(self) -> list[Peer]:
        return cast(list[Peer], self.memory.take_resumable())

    def stuck(self, address: str, count: int) -> list[Peer]:
        """Peers that double their memory, until only one of them may go on."""
        peers = [Peer(address) for _ in range(count)]
        reading = [peer for peer in peers if self.take(peer, 1)]
        while len(reading) > 1:
            reading = [peer for peer in reading if self.take(peer, peer.held_bytes // MIB)]
            assert self.memory.held_bytes < 128 * MIB
        return peers


def test_many_large_requests_of_one_address_leave_room_for_a_small_one_of_the_same() -> None:
    memory = Memory()
    memory.stuck("attacker", 14)
    assert memory.memory.held_bytes <= 64 * MIB
    assert memory.take(Peer("attacker", frame_mib=1), 1)


@pytest.mark.parametrize("seed", range(50))
def test_a_small_request_gets_memory_in_any_order_of_large_ones(seed: int) -> None:
    order = random.Random(seed)
    memory = Memory()
    attackers = [Peer(f"attacker {order.randrange(4)}") for _ in range(order.randrange(1, 60))]
    reading = list(attackers)
    while len(reading) > 1:
        peer = order.choice(reading)
        if not memory.take_bytes(peer, peer.held_bytes or 32 * 1024):
            reading.remove(peer)
    for address in ("attacker 0", "honest"):
        peer = Peer(address, frame_mib=2)
        assert memory.take_bytes(peer, 2 * MIB)
        memory.free(peer)


def test_many_large_requests_of_one_address_leave_room_for_larger_ones_of_another() -> None:
    memory = Memory()
    memory.stuck("attacker", 14)
    honest = Peer("honest")
    assert all(memory.take(honest, 1) for _ in range(5))


def test_one_request_at_a_time_may_exceed_its_share_and_the_next_follows() -> None:
    memory = Memory()
    peers = [Peer("a"), Peer("a"), Peer("a")]
    assert [memory.take(peer, 40) for peer in peers] == [True, False, False]
    assert [peer.is_exempt for peer in peers] == [True, False, False]
    assert memory.take(peers[0], 10)
    assert memory.resumed() == []
    memory.free(peers[0])
    assert not peers[0].is_exempt
    assert memory.resumed() == [peers[1]]
    memory.free(peers[1])
    assert memory.resumed() == [peers[2]]
    memory.free(peers[2])
    assert memory.memory.held_bytes == 0
    assert memory.memory.waiting == {}


def test_the_connection_that_waits_longest_is_exempt_next() -> None:
    memory = Memory()
    first, second = Peer("a"), Peer("a")
    assert memory.take(first, 40)
    assert not memory.take(second, 40)
    memory.memory.end_exemption(cast(ServerConnection, first))
    assert not memory.take(first, 40), "its next request comes after the other connection"
    assert memory.resumed() == [second]


def test_a_connection_that_does_not_read_loses_its_exemption() -> None:
    memory = Memory()
    first, second = Peer("a"), Peer("a")
    assert memory.take(first, 40)
    assert not memory.take(second, 40)
    memory.memory.end_unused_exemption()
    assert memory.resumed() == []
    first.is_reading = False
    memory.memory.end_unused_exemption()
    assert memory.resumed() == [second]


def test_scarcity_is_reported_when_it_begins_and_when_it_ends() -> None:
    memory = Memory()
    peer = Peer("a")
    memory.take(peer, 31)
    assert memory.scarcity == []
    memory.take(peer, 1)
    memory.take(peer, 1)
    memory.free(peer)
    assert memory.scarcity == [True, False]
