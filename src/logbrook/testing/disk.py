"""Model of a disk: the durable tree, and the pending operations that a power loss may drop.

The model is POSIX at its strictest:

- Bytes and lengths of a file are pending until `fsync` of that file, which makes all of them durable at once.
- Names in a directory are pending until `fsync_dir` of that directory. Syncing a file does not keep its name, and a new
  directory's own name is kept by its parent.
- A rename is one change, kept or lost whole.
- A failed fsync may forget what was pending: it is then neither durable nor ever written.

`Disk.apply` applies the journal's operations one by one, at a cost independent of the journal's length. `variants`
decides which pending operations survive.
"""

from collections.abc import Callable

from logbrook.testing import journal


class Disk:
    """The durable tree and the pending operations, each with its place in the journal, oldest first."""

    def __init__(self, base: journal.Image) -> None:
        self.names = {directory: dict(entries) for directory, entries in base.names.items()}
        self.contents = dict(base.contents)
        self.pending_names: dict[int, list[tuple[int, journal.NameOp]]] = {}
        self.pending_data: dict[int, list[tuple[int, journal.DataOp]]] = {}
        self.marks: tuple[object, ...] = ()
        self._applied_count = 0
        # The content of each file with all pending operations applied: updated in place, and as cached immutable bytes.
        # Most states share most files, so the bytes objects are reused together with their cached hashes.
        self._written: dict[int, bytearray] = {}
        self._kept: dict[int, bytes] = {}
        self._sized: dict[int, bytes] = {}

    def apply(self, op: journal.Op) -> None:
        """Apply the next operation of the journal."""
        match op:
            case journal.Write() | journal.Truncate():
                self._pend_data(op)
            case journal.Create() | journal.MakeDir() | journal.Unlink() | journal.RemoveDir() | journal.Rename():
                self._pend_name(op)
            case journal.Fsync():
                self._sync_data(op.node)
            case journal.ForgetUnsynced():
                self._settle_data(op.node)
            case journal.FsyncDir():
                self._sync_names(op.directory)
            case journal.Mark():
                self.marks = (*self.marks, op.label)
        self._applied_count += 1

    def is_settled(self) -> bool:
        """True if nothing is pending, so that a power loss has only one outcome."""
        return not (self.pending_names or self.pending_data)

    def kept(self, node: int) -> bytes:
        """The file's content with all its pending operations applied."""
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
                if isinstance(op, journal.Truncate):
                    resize(sized, op.length)
                else:
                    resize(sized, max(len(sized), op.position + len(op.data)))
            content = self._sized[node] = bytes(sized)
        return content

    def names_kept(self, directory: int) -> dict[str, int]:
        """The directory's entries with all its pending operations applied."""
        return self.names_where(lambda _: True, directory)

    def names_where(self, is_kept: Callable[[int], bool], directory: int) -> dict[str, int]:
        """The directory's entries with the pending operations for whose place in the journal `is_kept` is true."""
        pending = self.pending_names.get(directory)
        if pending is None:
            return self.names[directory]
        entries = dict(self.names[directory])
        for position, op in pending:
            if is_kept(position):
                change_names(entries, op)
        return entries

    def content_where(self, is_kept: Callable[[int], bool], node: int) -> bytes:
        """The file's content with the pending operations for whose place in the journal `is_kept` is true."""
        pending = self.pending_data.get(node, ())
        kept = [op for position, op in pending if is_kept(position)]
        if not kept:
            return self.contents[node]
        if len(kept) == len(pending):
            return self.kept(node)
        content = bytearray(self.contents[node])
        for op in kept:
            change_data(content, op)
        return bytes(content)

    def _pend_data(self, op: journal.DataOp) -> None:
        written = self._written.get(op.node)
        if written is None:
            written = self._written[op.node] = bytearray(self.contents[op.node])
        change_data(written, op)
        self._kept.pop(op.node, None)
        self._sized.pop(op.node, None)
        self.pending_data.setdefault(op.node, []).append((self._applied_count, op))

    def _pend_name(self, op: journal.NameOp) -> None:
        if isinstance(op, journal.Create):
            self.contents[op.node] = b""
        elif isinstance(op, journal.MakeDir):
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


def change_names(entries: dict[str, int], op: journal.NameOp) -> None:
    """Apply a name operation if its precondition holds: the node still has the name, and a new name is free."""
    if isinstance(op, journal.Create | journal.MakeDir):
        entries.setdefault(op.name, op.node)
    elif entries.get(op.name) == op.node:
        del entries[op.name]
        if isinstance(op, journal.Rename):
            entries[op.target] = op.node


def change_data(content: bytearray, op: journal.DataOp) -> None:
    if isinstance(op, journal.Truncate):
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
