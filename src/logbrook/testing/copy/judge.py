"""Whether a copy is one: every record once, in its partition, in its order, and nothing else.

Keys need no rule of their own: the records of a key are in one partition, and its order is theirs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from logbrook.testing.copy.transform import transform

Record = tuple[bytes | None, bytes]
_TOLD_MAX = 3


def differences(
    originals: Mapping[int, Sequence[Record]], copies: Mapping[int, Sequence[Record]], committed: Mapping[int, int]
) -> list[str]:
    """In words; none if the copy is one. `committed` is what the group says of the originals' partitions."""
    found: list[str] = []
    for number in sorted({*originals, *copies}):
        wanted = [(key, transform(value)) for key, value in originals.get(number, ())]
        found += [f"partition {number}: {what}" for what in _different(wanted, copies.get(number, ()))]
    for number, records in originals.items():
        offset = committed.get(number)
        if offset != len(records):
            found.append(f"partition {number}: the group has committed {offset} of {len(records)} records")
    return found


def _different(wanted: Sequence[Record], copies: Sequence[Record]) -> list[str]:
    if wanted == copies:
        return []
    times = Counter(copies)
    lost = [record for record in wanted if record not in times]
    foreign = set(times).difference(wanted)
    twice = [record for record, count in times.items() if count > 1 and record not in foreign]
    found = [
        f"{len(records):,} {what}, such as {list(records)[:_TOLD_MAX]}"
        for records, what in (
            (lost, "are lost"),
            (twice, "came more than once"),
            (sorted(foreign, key=str), "are no copies"),
        )
        if records
    ]
    place = {record: number for number, record in enumerate(wanted)}
    places = [place[record] for record in dict.fromkeys(copies) if record in place]
    late = sum(later < earlier for earlier, later in pairwise(places))
    return found + ([f"{late:,} are out of order"] if late else [])
