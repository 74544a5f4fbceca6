"""A disk in memory that records every change, so that power can be cut after any of them.

The workload runs on a `RecordingFiles` and calls `mark` for whatever it promises on the way (an acknowledgement, an
offset shown to a reader). Afterwards `crash_states(files.journal)` gives the disks that a power loss could have left.

Given an `image`, the disk starts with a copy of that tree, counted as durable: recovery from a crash is recorded, and
crashed, like any other run.

The order of the journal is the order in which the changes happened, whatever threads made them. Calls that change
nothing (a failed one, an empty write, a rename of a name to itself) leave no trace, and reads are not recorded.
"""

import threading

from logbrook.testing.inodes import MemoryDirectory, MemoryInode
from logbrook.testing.journal import (
    ROOT,
    Create,
    ForgetUnsynced,
    Fsync,
    FsyncDir,
    Image,
    Journal,
    MakeDir,
    Mark,
    Op,
    RemoveDir,
    Rename,
    Truncate,
    Unlink,
    Write,
)
from logbrook.testing.memory_files import MemoryFile, MemoryFiles


class RecordingFile(MemoryFile):
    """An open file whose changes go into the journal of its door."""

    __slots__ = ("_door",)

    def __init__(self, door: "RecordingFiles", path: str, inode: MemoryInode) -> None:
        super().__init__(door, path, inode)
        self._door = door

    def fsync(self) -> None:
        self._door.record(Fsync(self.path, self._opened().number))

    def forget_unsynced(self) -> None:
        """What a failed fsync may do: readers still see the bytes, but no later fsync will write them."""
        self._door.record(ForgetUnsynced(self.path, self._opened().number))

    def _write(self, inode: MemoryInode, data: bytes, position: int) -> None:
        if data:
            with self._door.mutex:
                super()._write(inode, data, position)
                self._door.record(Write(self.path, inode.number, position, data))

    def _truncate(self, inode: MemoryInode, length: int) -> None:
        with self._door.mutex:
            super()._truncate(inode, length)
            self._door.record(Truncate(self.path, inode.number, length))


class RecordingFiles(MemoryFiles):
    """A `MemoryFiles` that keeps a `journal`."""

    def __init__(self, image: MemoryFiles | None = None, *, capacity_bytes: int | None = None) -> None:
        super().__init__(image, capacity_bytes=capacity_bytes)
        self.mutex = threading.RLock()
        self._number_last = ROOT
        self.journal = Journal(base=self._number_tree())

    def mark(self, label: object) -> None:
        """Note that something was promised at this point."""
        self.record(Mark(label))

    def record(self, op: Op) -> None:
        with self.mutex:
            self.journal.ops.append(op)

    def create(self, path: str) -> RecordingFile:
        with self.mutex:
            super().create(path).close()
            directory, name = self._place(path)
            inode = self._inode(path)
            inode.number = self._number_next()
            self.record(Create(path, directory.number, name, inode.number))
            return self._handle(path, inode)

    def open(self, path: str) -> RecordingFile:
        return self._handle(path, self._inode(path))

    def make_dir(self, path: str) -> None:
        with self.mutex:
            super().make_dir(path)
            directory, name = self._place(path)
            made = self._directory(path)
            made.number = self._number_next()
            self.record(MakeDir(path, directory.number, name, made.number))

    def remove_dir(self, path: str) -> None:
        with self.mutex:
            directory, name = self._place(path)
            removed = self._directory(path)
            super().remove_dir(path)
            self.record(RemoveDir(path, directory.number, name, removed.number))

    def rename(self, source: str, target: str) -> None:
        """Within one directory only: Logbrook never renames across, and what a crash makes of that is not modelled."""
        with self.mutex:
            node = self._node(source)
            directory, name = self._place(source)
            target_directory, target_name = self._place(target)
            assert directory is target_directory, f"rename across directories: {source} to {target}"
            super().rename(source, target)
            if name != target_name:
                self.record(Rename(source, directory.number, name, target_name, node.number))

    def unlink(self, path: str) -> None:
        with self.mutex:
            directory, name = self._place(path)
            inode = self._inode(path)
            super().unlink(path)
            self.record(Unlink(path, directory.number, name, inode.number))

    def fsync_dir(self, path: str) -> None:
        self.record(FsyncDir(path, self._directory(path).number))

    def _handle(self, path: str, inode: MemoryInode) -> RecordingFile:
        return RecordingFile(self, path, inode)

    def _number_next(self) -> int:
        self._number_last += 1
        return self._number_last

    def _number_tree(self) -> Image:
        """Number every node of the tree the disk starts with, in the order of its sorted paths."""
        names: dict[int, dict[str, int]] = {}
        contents: dict[int, bytes] = {}

        def number(directory: MemoryDirectory) -> None:
            names[directory.number] = entries = {}
            for name, node in sorted(directory.entries.items()):
                node.number = entries[name] = self._number_next()
                if isinstance(node, MemoryInode):
                    contents[node.number] = node.content()
                else:
                    number(node)

        number(self.root_directory)
        return Image(names, contents)
