"""The journal of a `RecordingFiles`: every change, in order, as small immutable operations.

Files and directories are numbered, because names change: 0 is the root, and a number is never used twice. Every
operation also carries the path that the caller used, for messages only.

A journal starts from an `Image`, a tree that counts as durable: empty for a new disk, or what a crash left, so that
recovery can be recorded and crashed too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ROOT = 0


class Create(NamedTuple):
    path: str
    directory: int
    name: str
    node: int


class MakeDir(NamedTuple):
    path: str
    directory: int
    name: str
    node: int


class Unlink(NamedTuple):
    path: str
    directory: int
    name: str
    node: int


class RemoveDir(NamedTuple):
    path: str
    directory: int
    name: str
    node: int


class Rename(NamedTuple):
    """Atomic rename within a directory; the target name may exist and is then replaced."""

    path: str
    directory: int
    name: str
    target: str
    node: int


class Write(NamedTuple):
    path: str
    node: int
    position: int
    data: bytes


class Truncate(NamedTuple):
    path: str
    node: int
    length: int


class Fsync(NamedTuple):
    path: str
    node: int


class ForgetUnsynced(NamedTuple):
    """A failed fsync after which the kernel marks the pages clean: the pending bytes will never be written."""

    path: str
    node: int


class FsyncDir(NamedTuple):
    path: str
    directory: int


class Mark(NamedTuple):
    """A workload event that is not a file operation, such as acknowledging a record."""

    label: object


NameOp = Create | MakeDir | Unlink | RemoveDir | Rename
DataOp = Write | Truncate
Op = NameOp | DataOp | Fsync | ForgetUnsynced | FsyncDir | Mark


@dataclass(frozen=True, slots=True)
class Image:
    """A tree as tables: the entries of each directory and the bytes of each file, by number."""

    names: Mapping[int, Mapping[str, int]] = field(default_factory=lambda: {ROOT: {}})
    contents: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Journal:
    base: Image = field(default_factory=Image)
    ops: list[Op] = field(default_factory=list)

    def marks(self) -> list[object]:
        """The labels of every mark, in order."""
        return [op.label for op in self.ops if isinstance(op, Mark)]


def describe(op: Op) -> str:
    """Describe an operation without its data."""
    match op:
        case Mark(label):
            return f"mark {label!r}"
        case Write(path, _, position, data):
            return f"write {path} [{position}, {position + len(data)})"
        case Truncate(path, _, length):
            return f"truncate {path} to {length}"
        case Rename(path, _, _, target, _):
            return f"rename {path} to {target}"
        case _:
            return f"{_VERBS[type(op)]} {op.path or '/'}"


_VERBS: dict[type[Op], str] = {
    Create: "create",
    MakeDir: "make_dir",
    Unlink: "unlink",
    RemoveDir: "remove_dir",
    Fsync: "fsync",
    ForgetUnsynced: "failed fsync",
    FsyncDir: "fsync_dir",
}
