"""The active segment: the one that appends go to."""

from collections.abc import Sequence
from contextlib import closing, suppress

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import Files
from logbrook.storage.durable_files import create_or_replace, is_unreadable, sync_file
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import HEADER_BYTES as INDEX_HEADER_BYTES
from logbrook.storage.index import BadIndexError, Index, IndexBuilder, decode_index_header, encode_index_header
from logbrook.storage.open_files import OpenFiles, SegmentBytes
from logbrook.storage.probe import StorageProbe
from logbrook.storage.segment import Segment


class ActiveSegment(Segment):
    """The active segment of a log. Appends go to the file at once, index entries with `write_index`."""

    def __init__(
        self,
        partition: TopicPartition,
        base_offset: Offset,
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
        """Create empty files. Their names are durable once the directory is synced."""
        self._open_files.create(self.path)
        self._open_files.create(self.index_path)
        self._write_index_header()
        # Not synced: missing index entries are rebuilt from the log.
        self._open_files.drop(self.index_path)

    def create_closed(self, files: Files) -> None:
        """Create empty files as `create` does, on any thread: they are opened on their first use."""
        create_or_replace(files, self.path).close()
        with closing(create_or_replace(files, self.index_path)) as file:
            file.pwrite(encode_index_header(self.base_offset, self.first_append_ms), 0)

    def append(self, data: memoryview, batches: Sequence[tuple[int, int, int]], now_ms: int) -> int:
        """Write `data`, whose batches are (position in data, base offset, max timestamp). Returns its position.

        After an OSError the segment is unchanged: bytes that reached the file are past its size.
        """
        position = self._size
        if self.first_append_ms is None:
            self.first_append_ms = now_ms
            self._write_index_header()
        self._open_files.get(self.path).pwrite(data, position)
        add = self._builder.add
        if self._known_positions:
            # The high watermark of the next reads, and where they begin.
            self.note_position(Offset(batches[0][1]), position)
        for start, base_offset, max_timestamp in batches:
            add(Offset(base_offset), position + start, max_timestamp)
        self._size = position + len(data)
        return position

    def adopt(self, base_offset: Offset, max_timestamp: int, length: int) -> None:
        """Add a batch that is already in the file, during recovery."""
        self._builder.add(base_offset, self._size, max_timestamp)
        self._size += length

    def open_at(self, position: int) -> None:
        """Continue a segment on disk that ends at `position`, using its index.

        Missing index entries are rebuilt from the log. Raises CorruptLogError if the log before `position` is corrupt.
        """
        self._size = position
        try:
            file = self._open_files.get(self.index_path)
        except FileNotFoundError:
            file = self._open_files.create(self.index_path)
        try:
            data = file.pread(file.size(), 0)
        except OSError as error:
            if not is_unreadable(error):
                raise
            self._open_files.create(self.index_path)
            data = b""
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
        """Write new index entries to the index file, without a sync."""
        entries = self._builder.index.entries
        if len(entries) > self._index_bytes_written:
            file = self._open_files.get(self.index_path)
            file.pwrite(entries[self._index_bytes_written :], INDEX_HEADER_BYTES + self._index_bytes_written)
            self._index_bytes_written = len(entries)

    def close(self) -> None:
        """Write the index and close the files: the segment becomes a closed one."""
        self.write_index()
        self.truncate_excess()
        self.forget()

    def truncate_excess(self) -> None:
        """Truncate the file to the segment's size, after a failed append."""
        file = self._open_files.get(self.path)
        if file.size() > self._size:
            file.truncate(self._size)

    def truncate(self, position: int) -> None:
        """Truncate durably at the batch at `position`. The index first: it may lack entries, not have extra ones."""
        self._known_positions.clear()
        self._builder.index.cut(position)
        index_file = self._open_files.get(self.index_path)
        index_file.truncate(INDEX_HEADER_BYTES + min(self._index_bytes_written, len(self._builder.index.entries)))
        sync_file(index_file)
        file = self._open_files.get(self.path)
        file.truncate(position)
        sync_file(file)
        self.open_at(position)
        self.reset_age_if_empty()

    def reset_age_if_empty(self) -> None:
        """Reset the age of an empty segment: it starts with the next append."""
        if self._size == 0:
            self.first_append_ms = None

    def remove(self, files: Files) -> None:
        """Remove the files that exist."""
        self.drop()
        for path in (self.path, self.index_path):
            with suppress(FileNotFoundError):
                files.unlink(path)

    def forget(self) -> None:
        """Sync and close the file handles."""
        self._open_files.forget(self.path)
        self._open_files.forget(self.index_path)

    def drop(self) -> None:
        self._open_files.drop(self.path)
        self._open_files.drop(self.index_path)

    def _pread(self, position: int, length: int) -> memoryview:
        return self._open_files.read(self.path, length, position)

    def _locate(self, position: int, length: int) -> SegmentBytes:
        return self._open_files.read_or_locate(self.path, length, position)

    def _index(self) -> Index:
        return self._builder.index

    def _resume(self, builder: IndexBuilder) -> int:
        """Return the position after the last index entry, which must match the log. Raises BadIndexError."""
        start = builder.resume()
        if start:
            try:
                first = next(self._walk(start), None)
            except CorruptLogError as error:
                # Either the index or the log is corrupt: rebuilding the index decides which.
                raise BadIndexError("the last index entry does not point at a batch") from error
            if first is None or first.header.base_offset != builder.index.last().offset:
                raise BadIndexError("the last index entry points at a batch with another offset")
        return start

    def rebuild_index(self) -> None:
        self._probe.indexes_rebuilt += 1
        self._write_index_header()
        self._fill(IndexBuilder(Index(self.base_offset, bytearray()), self._interval_bytes), 0)

    def _fill(self, builder: IndexBuilder, start: int) -> None:
        """Use `builder` after adding entries for the log from `start` on; truncate the index file to what it has."""
        self._index_bytes_written = len(builder.index.entries)
        self._open_files.get(self.index_path).truncate(INDEX_HEADER_BYTES + self._index_bytes_written)
        for batch in self._walk(start, builder.index.last().offset):
            builder.add(batch.header.base_offset, batch.position, batch.header.max_timestamp)
        self._builder = builder

    def _write_index_header(self) -> None:
        header = encode_index_header(self.base_offset, self.first_append_ms)
        self._open_files.get(self.index_path).pwrite(header, 0)
