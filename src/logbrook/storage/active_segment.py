"""The segment that is being written. Its bytes may yet be cut, so it is never mapped."""

from collections.abc import Sequence
from contextlib import suppress

from logbrook.model import TopicPartition
from logbrook.ports import Files
from logbrook.storage.disk_errors import sync_file
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import HEADER_BYTES as INDEX_HEADER_BYTES
from logbrook.storage.index import BadIndexError, Index, decode_index_header, encode_index_header
from logbrook.storage.index_builder import IndexBuilder
from logbrook.storage.open_files import OpenFiles
from logbrook.storage.probe import StorageProbe
from logbrook.storage.segment import LogSlice, Segment, Window

# Enough for the headers between two index entries, mostly in one read.
_WINDOW_BYTES = 8192


class ActiveSegment(Segment):
    """Appends go to the file at once; index entries are kept in memory and written by `write_index`."""

    def __init__(
        self,
        partition: TopicPartition,
        base_offset: int,
        open_files: OpenFiles,
        index_interval_bytes: int,
        probe: StorageProbe,
    ) -> None:
        super().__init__(partition, base_offset)
        self._open_files = open_files
        self._probe = probe
        self._interval_bytes = index_interval_bytes
        self._builder = IndexBuilder(Index(base_offset, bytearray()), index_interval_bytes)
        self._size = 0
        self._index_bytes_written = 0
        self.first_append_ms: int | None = None

    @property
    def size(self) -> int:
        return self._size

    @property
    def max_timestamp(self) -> int:
        return self._builder.max_timestamp

    def create(self) -> None:
        """Make the files, empty. Their names are durable once the directory is synced."""
        self._open_files.create(self.path)
        self._open_files.create(self.index_path)
        self._write_index_header()
        # It is not synced: what is missing of an index is made again from the log.
        self._open_files.drop(self.index_path)

    def append(self, data: memoryview, batches: Sequence[tuple[int, int, int]], now_ms: int) -> int:
        """Write `data`, whose batches are (position in data, base offset, max timestamp). Returns its position.

        On an OSError the segment is as it was: the bytes that may have reached the file lie past its size.
        """
        position = self._size
        if self.first_append_ms is None:
            self.first_append_ms = now_ms
            self._write_index_header()
        self._open_files.get(self.path).pwrite(data, position)
        add = self._builder.add
        for start, base_offset, max_timestamp in batches:
            add(base_offset, position + start, max_timestamp)
        self._size = position + len(data)
        return position

    def adopt(self, base_offset: int, max_timestamp: int, length: int) -> None:
        """Count a batch that is in the file already, as recovery finds it."""
        self._builder.add(base_offset, self._size, max_timestamp)
        self._size += length

    def open_at(self, position: int) -> None:
        """Continue a segment that is on disk and ends at `position`, with what its index knows of the log before.

        What the index lacks is filled in from the log. Raises CorruptLogError when the log before `position` is bad.
        """
        self._size = position
        try:
            file = self._open_files.get(self.index_path)
        except FileNotFoundError:
            file = self._open_files.create(self.index_path)
        data = file.pread(file.size(), 0)
        try:
            self.first_append_ms = decode_index_header(self.base_offset, data)
            index = Index(self.base_offset, bytearray(data[INDEX_HEADER_BYTES:]))
            index.cut(position)
            builder = IndexBuilder(index, self._interval_bytes)
            start = self._resume(builder)
        except BadIndexError:
            self.rebuild_index()
        else:
            self._fill(builder, start)

    def write_index(self) -> None:
        """Bring the index file up to date, short of syncing it."""
        entries = self._builder.index.entries
        if len(entries) > self._index_bytes_written:
            file = self._open_files.get(self.index_path)
            file.pwrite(entries[self._index_bytes_written :], INDEX_HEADER_BYTES + self._index_bytes_written)
            self._index_bytes_written = len(entries)

    def close(self) -> None:
        """Write what is only in memory and let go of the files; the segment is about to become a closed one."""
        self.write_index()
        self.cut_excess()
        self.forget()

    def cut_excess(self) -> None:
        """Cut off what a failed append left behind the segment's end."""
        file = self._open_files.get(self.path)
        if file.size() > self._size:
            file.truncate(self._size)

    def truncate(self, position: int) -> None:
        """Cut the segment at the batch that starts at `position`, durably. The index goes first: it may be short."""
        self._builder.index.cut(position)
        index_file = self._open_files.get(self.index_path)
        index_file.truncate(INDEX_HEADER_BYTES + min(self._index_bytes_written, len(self._builder.index.entries)))
        sync_file(index_file)
        file = self._open_files.get(self.path)
        file.truncate(position)
        sync_file(file)
        self.open_at(position)
        self.forget_age_if_empty()

    def forget_age_if_empty(self) -> None:
        """An empty segment has no age: it counts from the next append."""
        if self._size == 0:
            self.first_append_ms = None

    def remove(self, files: Files) -> None:
        """Unlink the files, as far as they are there."""
        self.drop()
        for path in (self.path, self.index_path):
            with suppress(FileNotFoundError):
                files.unlink(path)

    def forget(self) -> None:
        """Close the handles, syncing what was written through them."""
        self._open_files.forget(self.path)
        self._open_files.forget(self.index_path)

    def drop(self) -> None:
        self._open_files.drop(self.path)
        self._open_files.drop(self.index_path)

    def read(self, position: int, length: int) -> LogSlice:
        return LogSlice(self.path, position, length, self._open_files.read(self.path, length, position))

    def _index(self) -> Index:
        return self._builder.index

    def _window(self, position: int) -> Window:
        length = min(_WINDOW_BYTES, self._size - position)
        return Window(memoryview(self._open_files.get(self.path).pread(length, position)), position)

    def _resume(self, builder: IndexBuilder) -> int:
        """Where to go on from, once the last entry is known to fit the log. Raises BadIndexError."""
        start = builder.resume()
        if start:
            try:
                first = next(self._hops_in(self._window, start), None)
            except CorruptLogError as error:
                # The index or the log: making the index again from the log will tell.
                raise BadIndexError("the last entry points at no batch") from error
            if first is None or first.header.base_offset != builder.index.last().offset:
                raise BadIndexError("the last entry points at another batch than its own")
        return start

    def rebuild_index(self) -> None:
        self._probe.indexes_rebuilt += 1
        self._write_index_header()
        self._fill(IndexBuilder(Index(self.base_offset, bytearray()), self._interval_bytes), 0)

    def _fill(self, builder: IndexBuilder, start: int) -> None:
        """Make `builder` this segment's, with entries for the log from `start` on, and the file no longer than it."""
        self._index_bytes_written = len(builder.index.entries)
        self._open_files.get(self.index_path).truncate(INDEX_HEADER_BYTES + self._index_bytes_written)
        for hop in self._hops_in(self._window, start, builder.index.last().offset):
            builder.add(hop.header.base_offset, hop.position, hop.header.max_timestamp)
        self._builder = builder

    def _write_index_header(self) -> None:
        header = encode_index_header(self.base_offset, self.first_append_ms)
        self._open_files.get(self.index_path).pwrite(header, 0)
