"""Input of `logbrook produce`: records in a file or a pipe, with a delimiter between them."""

import os
import select
import stat
from collections.abc import Callable, Iterator

from logbrook.cli.failures import HeldInterrupt

LINE_END = b"\n"

_READ_BYTES = 256 << 10


class LineInput:
    """Reads lines from a file descriptor, without their line ends; or what another delimiter separates.

    `is_idle` is True after a run of lines if the next read would block: the writer must then flush, because the
    process at the other end of the pipe may be waiting for these records.
    """

    def __init__(
        self,
        descriptor: int,
        on_read: Callable[[int], None],
        held: HeldInterrupt,
        delimiter: bytes | None = LINE_END,
    ) -> None:
        """Without a delimiter, the whole input is one line.

        Ctrl-C and SIGTERM take effect while reading, which may block for user input.
        """
        self._descriptor = descriptor
        self._held = held
        self._on_read = on_read
        self._delimiter = delimiter
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLIN)

    def runs(self) -> Iterator[list[bytes]]:
        """Yield lists of complete lines. Raises StoppedError."""
        if self._delimiter is None:
            yield [b"".join(self._chunks())]
            return
        delimiter, overlap = self._delimiter, len(self._delimiter) - 1
        incomplete: list[bytes] = []
        # A delimiter of several bytes can begin in an earlier chunk.
        tail = b""
        for chunk in self._chunks():
            searched = tail + chunk
            if delimiter in searched:
                lines = b"".join([*incomplete, chunk]).split(delimiter)
                last = lines.pop()
                incomplete = [last] if last else []
                tail = last[-overlap:] if overlap else b""
                yield lines
            else:
                # Chunks of a long line are joined once, at its end.
                incomplete.append(chunk)
                tail = searched[-overlap:] if overlap else b""
        if incomplete:
            yield [b"".join(incomplete)]

    def preview(self) -> Iterator[list[bytes]]:
        """Yield the lines of a regular file without consuming them, and nothing of other input. Raises StoppedError."""
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return
        position = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        yield from LineInput(self._descriptor, lambda _: None, self._held, self._delimiter).runs()
        os.lseek(self._descriptor, position, os.SEEK_SET)

    @property
    def is_idle(self) -> bool:
        return not self._poller.poll(0)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._read():
            self._on_read(len(chunk))
            yield chunk

    def _read(self) -> bytes:
        with self._held.allowed():
            return os.read(self._descriptor, _READ_BYTES)
