"""The transactions of a log that were aborted: what readers of committed records must leave out.

In memory they are four columns, in the order of their markers. On disk they are one file per partition that only grows
(ADR 10), with an entry for each:

    bytes   field, little-endian
    0-7     producer id
    8-15    first offset: where the transaction began
    16-23   last offset: that of its marker
    24-31   last stable offset: the first that was undecided after the marker
    32-35   CRC32C of the above, seeded with the number of the entry
    36-39   zero

The file is a cache: an abort marker ends the transaction that began with its producer's first transactional batch after
the marker before, so everything here can be found in the log again. It is written and synced before the snapshot that
counts on it. Of a snapshot taken at an offset, exactly its count of entries may have their marker before that offset.
Where the file has not just these, none of it is believed.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from logbrook.ports import Files
from logbrook.storage.paths import ABORTED
from logbrook.storage.sealed_json import replace_file

_FIELDS = Struct("<qqqq")
_CRC = Struct("<I4x")
ENTRY_BYTES = _FIELDS.size + _CRC.size


class Aborted(NamedTuple):
    """One transaction that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """Those of one log, those left out that lie wholly before its start."""

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")
        # Entries at the beginning of the file that are not in memory any more.
        self._dropped = 0
        # The entries in the file, with those that were dropped; None when it has to be written anew.
        self._written: int | None = 0

    def __len__(self) -> int:
        return len(self._last_offsets)

    @property
    def count(self) -> int:
        """What a snapshot counts on: the entries that the file has once it is written."""
        return self._dropped + len(self)

    @classmethod
    def load(
        cls, files: Files, directory: str, count: int, snapshot_offset: int, log_start_offset: int
    ) -> "AbortedTransactions | None":
        """The `count` entries that a snapshot taken at `snapshot_offset` counts on; None when they are not all there.

        What comes after them in the file will be written over. Raises OSError.
        """
        data = _read(files, f"{directory}/{ABORTED}")
        found = cls()
        for number in range(min(count + 1, len(data) // ENTRY_BYTES)):
            entry = _decode(data, number)
            is_counted = number < count
            if entry is None or is_counted != (entry.last_offset < snapshot_offset):
                if entry is None and not is_counted:
                    break
                return None
            if is_counted:
                if found._last_offsets and entry.last_offset <= found._last_offsets[-1]:
                    return None
                found.add(entry)
        if len(found) < count:
            return None
        found._written = count
        found.drop_before(log_start_offset)
        if found._dropped > len(found):
            found.renew()
        return found

    def add(self, aborted: Aborted) -> None:
        """Take note of one whose marker comes after all others."""
        assert not self._last_offsets or aborted.last_offset > self._last_offsets[-1], "markers come in order"
        self._producer_ids.append(aborted.producer_id)
        self._first_offsets.append(aborted.first_offset)
        self._last_offsets.append(aborted.last_offset)
        self._last_stable_offsets.append(aborted.last_stable_offset)

    def overlapping(self, start_offset: int, end_offset: int) -> list[Aborted]:
        """Those that may have records from `start_offset` up to, not including, `end_offset`, by their markers."""
        found: list[Aborted] = []
        for number in range(bisect_left(self._last_offsets, start_offset), len(self)):
            if self._first_offsets[number] < end_offset:
                found.append(self._entry(number))
            if self._last_stable_offsets[number] >= end_offset:
                # Whatever ends after this marker began at its last stable offset or later.
                break
        return found

    def between(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of each, for a reader of these offsets."""
        return [(one.producer_id, one.first_offset) for one in self.overlapping(start_offset, end_offset)]

    def drop_before(self, log_start_offset: int) -> None:
        """Forget those that lie wholly before the start of the log."""
        dead = bisect_left(self._last_offsets, log_start_offset)
        if not dead:
            return
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._last_stable_offsets):
            del column[:dead]
        if self._written:
            self._dropped += dead
            if self._dropped > self._written:
                # Some of them never came to the file.
                self.renew()

    def remove(self, last_offsets: Collection[int]) -> None:
        """Forget those with these markers: nothing is left of them in the log."""
        kept = [self._entry(number) for number in range(len(self)) if self._last_offsets[number] not in last_offsets]
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._last_stable_offsets):
            del column[:]
        for one in kept:
            self.add(one)
        self.renew()

    def renew(self) -> None:
        """Have the file written anew: what is in it now is not what is here."""
        self._dropped = 0
        self._written = None

    def write(self, files: Files, directory: str) -> None:
        """Bring the file up to date, short of syncing what is appended to it. Raises OSError or StorageOfflineError."""
        path = f"{directory}/{ABORTED}"
        if self._written is None:
            self._write_anew(files, path)
        elif self.count > self._written:
            position = self._written * ENTRY_BYTES
            try:
                file = files.open(path)
            except FileNotFoundError:
                if self._written:
                    self._write_anew(files, path)
                    return
                file = files.create(path)
            try:
                if file.size() > position:
                    # What a crash left there may speak of a log that never was.
                    file.truncate(position)
                file.pwrite(self._encode(self._written), position)
            finally:
                file.close()
            self._written = self.count

    def _write_anew(self, files: Files, path: str) -> None:
        self._dropped = 0
        if len(self):
            replace_file(files, path, self._encode(0))
        else:
            with suppress(FileNotFoundError):
                files.unlink(path)
        self._written = len(self)

    def _encode(self, first: int) -> bytes:
        """The entries of the file from number `first` on."""
        data = bytearray()
        for number in range(first, self.count):
            fields = _FIELDS.pack(*self._entry(number - self._dropped))
            data += fields + _CRC.pack(crc32c(fields, number))
        return bytes(data)

    def _entry(self, number: int) -> Aborted:
        return Aborted(
            self._producer_ids[number],
            self._first_offsets[number],
            self._last_offsets[number],
            self._last_stable_offsets[number],
        )


def _read(files: Files, path: str) -> bytes:
    try:
        file = files.open(path)
    except FileNotFoundError:
        return b""
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _decode(data: bytes, number: int) -> Aborted | None:
    """Entry `number`, unless its checksum does not hold."""
    start = number * ENTRY_BYTES
    fields = data[start : start + _FIELDS.size]
    (crc,) = _CRC.unpack_from(data, start + _FIELDS.size)
    return Aborted(*_FIELDS.unpack(fields)) if crc32c(fields, number) == crc else None
