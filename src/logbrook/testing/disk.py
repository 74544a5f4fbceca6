"""What a disk holds for certain, and what it was asked for but may still lose.

The model is POSIX at its strictest:

- Bytes and lengths of a file are pending until `fsync` of that file, which makes all of them durable at once.
- Names in a directory are pending until `fsync_dir` of that directory. Syncing a file does not keep its name, and a new
  directory's own name is kept by its parent.
- A rename is one change, kept or lost whole.
- A failed fsync may forget what was pending: it is then neither durable nor ever written.

`Disk.apply` takes the journal's operations one by one, at a cost that does not grow with the journal, and `Disk` can
be asked for the state after any of them. What survives of the pending operations is for `variants` to say.
"""

from logbrook.testing.journal import (
    Create,
    DataOp,
    ForgetUnsynced,
    Fsync,
    FsyncDir,
    Image,
    MakeDir,
    Mark,
    NameOp,
    Op,
    RemoveDir,
    Rename,
    Truncate,
    Unlink,
    Write,
)


class Disk:
    """The durable tree and the pending operations, each with its place in the journal, oldest first."""

    def __init__(self, base: Image) -> None:
        self.names = {directory: dict(entries) for directory, entries in base.names.items()}
        self.contents = dict(base.contents)
        self.pending_names: dict[int, list[tuple[int, NameOp]]] = {}
        self.pending_data: dict[int, list[tuple[int, DataOp]]] = {}
        self.marks: tuple[object, ...] = ()
        self._applied_count = 0
        # What all pending operations together make of each file, kept up to date in place, and as the bytes last asked
        # for: most states share most files, so these are reused, with the hash that Python caches in them.
        self._written: dict[int, bytearray] = {}
        self._kept: dict[int, bytes] = {}
        self._sized: dict[int, bytes] = {}

    def apply(self, op: Op) -> None:
        """Take the next operation of the journal."""
        match op:
            case Write() | Truncate():
                self._pend_data(op)
            case Create() | MakeDir() | Unlink() | RemoveDir() | Rename():
                self._pend_name(op)
            case Fsync():
                self._sync_data(op.node)
            case ForgetUnsynced():
                self._settle_data(op.node)
            case FsyncDir():
                self._sync_names(op.directory)
            case Mark():
                self.marks = (*self.marks, op.label)
        self._applied_count += 1

    def is_settled(self) -> bool:
        """Whether nothing is pending, so that a power loss has one outcome only."""
        return not (self.pending_names or self.pending_data)

    def kept(self, node: int) -> bytes:
        """The file with all its pending operations done."""
        if node not in self.pending_data:
            return self.contents[node]
        if (content := self._kept.get(node)) is None:
            content = self._kept[node] = bytes(self._written[node])
        return content

    def sized(self, node: int) -> bytes:
        """The file with its pending lengths but not its pending bytes: what is new reads as zeros."""
        pending = self.pending_data.get(node)
        if pending is None:
            return self.contents[node]
        if (content := self._sized.get(node)) is None:
            sized = bytearray(self.contents[node])
            for _, op in pending:
                if isinstance(op, Truncate):
                    resize(sized, op.length)
                else:
                    resize(sized, max(len(sized), op.position + len(op.data)))
            content = self._sized[node] = bytes(sized)
        return content

    def names_kept(self, directory: int) -> dict[str, int]:
        """The directory with all its pending operations done."""
        pending = self.pending_names.get(directory)
        if pending is None:
            return self.names[directory]
        entries = dict(self.names[directory])
        for _, op in pending:
            change_names(entries, op)
        return entries

    def _pend_data(self, op: DataOp) -> None:
        written = self._written.get(op.node)
        if written is None:
            written = self._written[op.node] = bytearray(self.contents[op.node])
        change_data(written, op)
        self._kept.pop(op.node, None)
        self._sized.pop(op.node, None)
        self.pending_data.setdefault(op.node, []).append((self._applied_count, op))

    def _pend_name(self, op: NameOp) -> None:
        if isinstance(op, Create):
            self.contents[op.node] = b""
        elif isinstance(op, MakeDir):
            self.names[op.node] = {}
        self.pending_names.setdefault(op.directory, []).append((self._applied_count, op))

    def _sync_data(self, node: int) -> None:
        self.contents[node] = self.kept(node)
        self._settle_data(node)

    def _settle_data(self, node: int) -> None:
        self.pending_data.pop(node, None)
        self._written.pop(node, None)
        self._kept.pop(node, None)
        self._sized.pop(node, None)

    def _sync_names(self, directory: int) -> None:
        self.names[directory] = self.names_kept(directory)
        self.pending_names.pop(directory, None)


def change_names(entries: dict[str, int], op: NameOp) -> None:
    """Do a name operation if it makes sense: its node is where the operation found it, a new name is free."""
    if isinstance(op, Create | MakeDir):
        entries.setdefault(op.name, op.node)
    elif entries.get(op.name) == op.node:
        del entries[op.name]
        if isinstance(op, Rename):
            entries[op.target] = op.node


def change_data(content: bytearray, op: DataOp) -> None:
    if isinstance(op, Truncate):
        resize(content, op.length)
    else:
        end = op.position + len(op.data)
        resize(content, max(len(content), end))
        content[op.position : end] = op.data


def resize(content: bytearray, length: int) -> None:
    """Cut the content, or extend it with zeros."""
    if length < len(content):
        del content[length:]
    else:
        content.extend(bytes(length - len(content)))
