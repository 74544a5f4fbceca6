"""An in-memory file system that records every change, so that a power loss can be simulated after each.

The workload runs on a `RecordingFiles` and calls `mark` for every promise it makes (an acknowledgement, an offset shown
to a reader). Afterwards `crash_states(files.journal)` yields the disks that a power loss could have left.

With an `image`, the disk starts with a copy of that tree, treated as durable: recovery from a crash is recorded, and
crashed, like any other run.

The order of the journal is the order in which the changes happened, whatever threads made them. Calls that change
nothing (a failed one, an empty write, a rename of a name to itself) are not recorded, nor are reads.
"""

import threading

from logbrook.testing import journal
from logbrook.testing.inodes import MemoryDirectory, MemoryInode
from logbrook.testing.memory_files import MemoryFile, MemoryFiles


class RecordingFile(MemoryFile):
    """An open file whose changes go into the journal of its `RecordingFiles`."""

    __slots__ = ("_recorder",)

    def __init__(self, files: "RecordingFiles", path: str, inode: MemoryInode) -> None:
        super().__init__(files, path, inode)
        self._recorder = files

    def fsync(self) -> None:
        self._recorder.record(journal.Fsync(self.path, self._opened().number))

    def forget_unsynced(self) -> None:
        """Simulate a failed fsync: readers still see the unsynced bytes, but no later fsync writes them."""
        self._recorder.record(journal.ForgetUnsynced(self.path, self._opened().number))

    def _write(self, inode: MemoryInode, data: bytes, position: int) -> None:
        if data:
            with self._recorder.mutex:
                super()._write(inode, data, position)
                self._recorder.record(journal.Write(self.path, inode.number, position, data))

    def _truncate(self, inode: MemoryInode, length: int) -> None:
        with self._recorder.mutex:
            super()._truncate(inode, length)
            self._recorder.record(journal.Truncate(self.path, inode.number, length))


class RecordingFiles(MemoryFiles):
    """A `MemoryFiles` that keeps a `journal`."""

    def __init__(self, image: MemoryFiles | None = None, *, capacity_bytes: int | None = None) -> None:
        super().__init__(image, capacity_bytes=capacity_bytes)
        self.mutex = threading.RLock()
        self._number_last = journal.ROOT
        self.journal = journal.Journal(base=self._number_tree())

    def mark(self, label: object) -> None:
        """Record a promise made at this point."""
        self.record(journal.Mark(label))

    def record(self, op: journal.Op) -> None:
        with self.mutex:
            self.journal.ops.append(op)

    def create(self, path: str) -> RecordingFile:
        with self.mutex:
            super().create(path).close()
            directory, name = self._place(path)
            inode = self._inode(path)
            inode.number = self._number_next()
            self.record(journal.Create(path, directory.number, name, inode.number))
            return self._handle(path, inode)

    def open(self, path: str) -> RecordingFile:
        return self._handle(path, self._inode(path))

    def make_dir(self, path: str) -> None:
        with self.mutex:
            super().make_dir(path)
            directory, name = self._place(path)
            made = self._directory(path)
            made.number = self._number_next()
            self.record(journal.MakeDir(path, directory.number, name, made.number))

    def remove_dir(self, path: str) -> None:
        with self.mutex:
            directory, name = self._place(path)
            removed = self._directory(path)
            super().remove_dir(path)
            self.record(journal.RemoveDir(path, directory.number, name, removed.number))

    def rename(self, source: str, target: str) -> None:
        """Within one directory only: Logbrook never renames across, and a crash during one is not modelled."""
        with self.mutex:
            node = self._node(source)
            directory, name = self._place(source)
            target_directory, target_name = self._place(target)
            assert directory is target_directory, f"rename across directories: {source} to {target}"
            super().rename(source, target)
            if name != target_name:
                self.record(journal.Rename(source, directory.number, name, target_name, node.number))

    def unlink(self, path: str) -> None:
        with self.mutex:
            directory, name = self._place(path)
            inode = self._inode(path)
            super().unlink(path)
            self.record(journal.Unlink(path, directory.number, name, inode.number))

    def fsync_dir(self, path: str) -> None:
        self.record(journal.FsyncDir(path, self._directory(path).number))

    def _handle(self, path: str, inode: MemoryInode) -> RecordingFile:
        return RecordingFile(self, path, inode)

    def _number_next(self) -> int:
        self._number_last += 1
        return self._number_last

    def _number_tree(self) -> journal.Image:
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
        return journal.Image(names, contents)
