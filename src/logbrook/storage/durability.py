"""When an append is done: the two answers that `durability` chooses between."""

from typing import Protocol

from logbrook.storage.ticket import Ticket


class Durability(Protocol):
    """What a log asks of it for each append: room first, then, once the segment is written, a place in the queue."""

    next_number: int

    def reserve(self, directory: bytes, length: int) -> None: ...

    def submit(
        self, ticket: Ticket, directory: bytes, segment_base_offset: int, position: int, data: memoryview
    ) -> None: ...

    def wait(self, ticket: Ticket) -> None: ...

    def skip_number(self) -> int: ...

    def commit(self) -> int: ...

    def release(self, number: int) -> None: ...

    @property
    def bytes_in_use(self) -> int: ...

    def close(self) -> None: ...


class IntervalDurability:
    """`durability = "interval"`: an append is done when it is in its segment, and a timer syncs the segments.

    Numbers go on counting, because checkpoints and truncations are ordered by them.
    """

    bytes_in_use = 0

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number

    def reserve(self, directory: bytes, length: int) -> None:
        """There is always room: the segment is all that is written."""

    def submit(
        self, ticket: Ticket, directory: bytes, segment_base_offset: int, position: int, data: memoryview
    ) -> None:
        """The bytes are where they belong, and that is all there is to do."""
        del directory, segment_base_offset, position, data
        self.next_number += 1
        ticket.complete()

    def wait(self, ticket: Ticket) -> None:
        ticket.complete()

    def skip_number(self) -> int:
        self.next_number += 1
        return self.next_number

    def commit(self) -> int:
        return 0

    def release(self, number: int) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""
