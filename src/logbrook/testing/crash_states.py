"""All disk states that a power loss could leave behind.

    files = RecordingFiles()
    run_workload(files)                          # calls files.mark(...) for each promise it makes
    for state in crash_states(files.journal, seeds=range(3)):
        recovered = recover(state.files)
        check(recovered, promised=state.marks), str(state)

A state is identified by the length of the journal prefix, the variant and the seed. The three always produce the same
disk; `materialise` rebuilds it to investigate a failure.

Equal states are yielded once. Two states are equal only if their trees are equal *and* the same marks precede them: an
old tree after a new promise is precisely the bug to find.

The journal is walked once. A state costs as much as its tree has names and its disk has pending operations, and shares
every unchanged file's bytes with its neighbours.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from logbrook.testing.disk import Disk
from logbrook.testing.inodes import MemoryDirectory, MemoryInode
from logbrook.testing.journal import ROOT, Journal, describe
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.variants import Content, Names, Variant, random_of, survivors

# A tree as a value: sorted names with the bytes of a file or the tree of a directory. Equal trees have equal hashes,
# and the hash of bytes is computed once per object, so telling states apart costs little.
Tree = tuple[tuple[str, "bytes | Tree"], ...]

ALL_VARIANTS = tuple(Variant)


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk after a power loss, for the test to recover on. `files` belongs to the test; nothing else refers to it."""

    prefix: int
    """Number of journal operations before the crash."""
    variant: Variant
    seed: int
    files: MemoryFiles
    marks: tuple[object, ...]
    """The labels that were marked before the crash, in order."""
    last_op: str
    """Description of the last operation before the crash."""

    def __str__(self) -> str:
        return f"prefix={self.prefix} variant={self.variant.name} seed={self.seed} (after {self.last_op})"


def crash_states(
    journal: Journal,
    *,
    variants: Sequence[Variant] = ALL_VARIANTS,
    seeds: Sequence[int] = (0,),
    prefixes: Container[int] | None = None,
    duplicates: bool = False,
) -> Iterator[CrashState]:
    """The states after each prefix of the journal, the empty and the whole one included, in a fixed order.

    Only random variants use the seeds. `prefixes` limits the states to some prefixes: a `range` samples a long journal
    or distributes it over processes. With `duplicates`, equal states are yielded each time they occur."""
    disk = Disk(journal.base)
    cases = [(variant, seed) for variant in variants for seed in (seeds if variant.is_seeded else (0,))]
    seen: set[int] = set()
    last_op = "nothing"
    for prefix in range(len(journal.ops) + 1):
        if prefix:
            disk.apply(journal.ops[prefix - 1])
            last_op = describe(journal.ops[prefix - 1])
        if prefixes is not None and prefix not in prefixes:
            continue
        for variant, seed in cases[:1] if disk.is_settled() and not duplicates else cases:
            tree = _tree_after(disk, prefix, variant, seed)
            if not duplicates:
                identity = hash((len(disk.marks), tree))
                if identity in seen:
                    continue
                seen.add(identity)
            yield CrashState(prefix, variant, seed, MemoryFiles.of(_directory(tree)), disk.marks, last_op)


def materialise(journal: Journal, prefix: int, variant: Variant, seed: int = 0) -> MemoryFiles:
    """Rebuild the disk of one state from the identity that a failure message prints."""
    if not 0 <= prefix <= len(journal.ops):
        raise ValueError(f"the journal has {len(journal.ops)} operations, not {prefix}")
    disk = Disk(journal.base)
    for op in journal.ops[:prefix]:
        disk.apply(op)
    return MemoryFiles.of(_directory(_tree_after(disk, prefix, variant, seed)))


def _tree_after(disk: Disk, prefix: int, variant: Variant, seed: int) -> Tree:
    names, content = survivors(disk, variant, random_of(prefix, variant, seed))
    return _tree(disk, ROOT, names, content)


def _tree(disk: Disk, directory: int, names: Names, content: Content) -> Tree:
    is_directory = disk.names
    return tuple(
        [
            (name, _tree(disk, node, names, content) if node in is_directory else content(node))
            for name, node in sorted(names(directory).items())
        ]
    )


def _directory(tree: Tree) -> MemoryDirectory:
    return MemoryDirectory(
        {name: MemoryInode(node) if isinstance(node, bytes) else _directory(node) for name, node in tree}
    )
