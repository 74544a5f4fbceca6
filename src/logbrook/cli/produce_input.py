"""What `produce` reads: pieces of a file or a pipe, as they come, cut into lines."""

import os
import select
from collections.abc import Callable, Iterator

from logbrook.cli.interrupts import HeldInterrupt

_PIECE_BYTES = 256 << 10


class LineInput:
    """The lines of a file descriptor, without their ends; the last one needs none.

    A writer that waits for the reader's answer must not wait for ever: `is_idle` says after each run of lines whether
    there is more to be had at once.
    """

    def __init__(self, descriptor: int, on_read: Callable[[int], None], held: HeldInterrupt) -> None:
        """Reading, which may be waiting for somebody to type, is where it can be interrupted."""
        self._descriptor = descriptor
        self._held = held
        self._on_read = on_read
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLIN)

    def runs(self) -> Iterator[list[bytes]]:
        """Runs of whole lines. Raises StoppedError."""
        unfinished: list[bytes] = []
        while piece := self._read():
            self._on_read(len(piece))
            if b"\n" not in piece:
                # A line may be longer than any piece, and is put together once.
                unfinished.append(piece)
                continue
            lines = b"".join([*unfinished, piece]).split(b"\n")
            last = lines.pop()
            unfinished = [last] if last else []
            yield lines
        if unfinished:
            yield [b"".join(unfinished)]

    def _read(self) -> bytes:
        with self._held.allowed():
            return os.read(self._descriptor, _PIECE_BYTES)

    @property
    def is_idle(self) -> bool:
        """Whether reading on would mean to wait."""
        return not self._poller.poll(0)
