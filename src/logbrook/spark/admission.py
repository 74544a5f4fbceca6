"""How much of what is there a micro-batch takes: pure arithmetic on offsets."""

from collections.abc import Mapping

from logbrook.model import TopicPartition

Offsets = dict[TopicPartition, int]


def take_offsets(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Where to end so that at most about `most` offsets are read, shared out in proportion to what is there.

    A partition that has anything gets at least one, so that none waits for ever behind the others. None goes back.
    """
    sizes = {one: max(0, end - start[one]) for one, end in latest.items()}
    total = sum(sizes.values())
    if total <= most:
        return {one: start[one] + size for one, size in sizes.items()}
    return {one: start[one] + (max(1, size * most // total) if size else 0) for one, size in sizes.items()}


def take_bytes(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
    most: int,
) -> Offsets:
    """Where to end so that about `most` bytes are read, going by what an offset takes on average."""
    sizes = {one: max(0, end - start[one]) for one, end in latest.items()}
    total = sum(size * bytes_per_offset.get(one, 0.0) for one, size in sizes.items())
    if total <= most:
        return {one: start[one] + size for one, size in sizes.items()}
    return {one: start[one] + (max(1, int(size * most / total)) if size else 0) for one, size in sizes.items()}


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, offset - start[one]) for one, offset in end.items())
