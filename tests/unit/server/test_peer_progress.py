"""A client is stalled if it sends or reads less than it has to within the time for it."""

from collections.abc import Sequence

from logbrook.server.peer_progress import PeerProgress, Transfer
from tests.unit.server.shell_kit import KIB, MIB

STALLED_S = 30.0


def stalled_at(transfers: Sequence[tuple[float, Transfer]], *, is_memory_scarce: bool = False) -> float | None:
    """Return the time of the first check that finds the client stalled."""
    progress = PeerProgress()
    for now_s, transfer in transfers:
        if progress.is_stalled(now_s, transfer, STALLED_S, is_memory_scarce=is_memory_scarce):
            return now_s
    return None


def reading(bytes_per_s: int, size: int, seconds: int) -> list[tuple[float, Transfer]]:
    """A client that reads a response of `size` bytes at this rate, checked every second."""
    return [
        (float(now_s), Transfer(1, bytes_per_s * now_s, max(0, size - bytes_per_s * now_s), 0))
        for now_s in range(seconds)
    ]


def sending(bytes_per_s: int, size: int, seconds: int, *, is_read: bool = True) -> list[tuple[float, Transfer]]:
    """A client that sends a request of `size` bytes at this rate."""
    return [(float(now_s), Transfer(1, bytes_per_s * now_s, 0, size if is_read else 0)) for now_s in range(seconds)]


def test_a_slow_reader_has_time_unless_memory_is_scarce() -> None:
    slow = reading(64 * KIB, 16 * MIB, 200)
    assert stalled_at(slow) is None
    assert stalled_at(slow, is_memory_scarce=True) == STALLED_S
    assert stalled_at(reading(MIB, 16 * MIB, 200), is_memory_scarce=True) is None


def test_a_reader_that_stops_is_stalled() -> None:
    assert stalled_at(reading(0, MIB, 100)) == STALLED_S
    assert stalled_at(reading(KIB, MIB, 100)) == STALLED_S


def test_a_request_has_a_deadline_by_its_size() -> None:
    deadline_s = STALLED_S + 99 * 2
    slow = sending(100 * KIB, 99 * MIB, 400)
    assert stalled_at(slow) == deadline_s
    assert stalled_at(slow[: int(deadline_s)]) is None


def test_time_in_which_the_broker_does_not_read_does_not_count() -> None:
    assert stalled_at(sending(0, 99 * MIB, 400, is_read=False)) is None


def test_the_next_request_has_a_deadline_of_its_own() -> None:
    requests = [(now_s, transfer._replace(frames=int(now_s) // 20)) for now_s, transfer in sending(100 * KIB, MIB, 400)]
    assert stalled_at(requests) is None
