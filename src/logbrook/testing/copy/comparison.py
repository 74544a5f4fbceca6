"""Compares a copy with its original: every record once, in its partition and order, and nothing else."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

Record = tuple[bytes | None, bytes]
_SHOWN_MAX = 3
_PREFIX = b"copy of "


def transform(value: bytes) -> bytes:
    """The transformation a copier applies, which distinguishes a copy from its original."""
    return _PREFIX + value


def differences(
    originals: Mapping[int, Sequence[Record]], copies: Mapping[int, Sequence[Record]], committed: Mapping[int, int]
) -> list[str]:
    """Describe the differences. `committed` has the group's committed offsets of the original's partitions."""
    descriptions: list[str] = []
    for number in sorted({*originals, *copies}):
        expected = [(key, transform(value)) for key, value in originals.get(number, ())]
        different = _partition_differences(expected, copies.get(number, ()))
        descriptions += [f"partition {number}: {difference}" for difference in different]
    for number, records in originals.items():
        offset = committed.get(number)
        if offset != len(records):
            descriptions.append(f"partition {number}: the group has committed {offset} of {len(records)} records")
    return descriptions


def _partition_differences(expected: Sequence[Record], copies: Sequence[Record]) -> list[str]:
    if expected == copies:
        return []
    times = Counter(copies)
    lost = [record for record in expected if record not in times]
    foreign = set(times).difference(expected)
    repeated = [record for record, count in times.items() if count > 1 and record not in foreign]
    descriptions = [
        f"{len(records):,} {problem}, such as {list(records)[:_SHOWN_MAX]}"
        for records, problem in (
            (lost, "are lost"),
            (repeated, "came more than once"),
            (sorted(foreign, key=str), "are not copies"),
        )
        if records
    ]
    position = {record: number for number, record in enumerate(expected)}
    positions = [position[record] for record in dict.fromkeys(copies) if record in position]
    late = sum(later < earlier for earlier, later in pairwise(positions))
    return descriptions + ([f"{late:,} are out of order"] if late else [])
