"""What reading a log has found, told in the same words wherever it was read: by a command on the files, by the broker
that has them open, or through a broker."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from logbrook.model import TopicPartition
from logbrook.storage.errors import CorruptLogError, StorageError
from logbrook.storage.log import Log
from logbrook.storage.verification import Verified, verify


class Damage(NamedTuple):
    """Where a log is bad, as far as that is known, and why."""

    reason: str
    file: str | None = None
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}, byte {self.position}, "
        around = "" if self.offset is None else f"around offset {self.offset}: "
        return f"{place}{around}{self.reason}"


class Checked(NamedTuple):
    """What was read of a log before its end or its first bad byte. Segments are only counted on the disk."""

    partition: TopicPartition
    segments: int | None
    batches: int | None
    records: int | None
    bytes: int | None
    damage: Damage | None

    def form(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "damage": None if self.damage is None else self.damage._asdict(),
        }

    @classmethod
    def from_form(cls, form: Mapping[str, Any]) -> "Checked":
        """Raises KeyError or TypeError for what is none."""
        damage = form["damage"]
        return cls(
            TopicPartition(form["topic"], form["partition"]),
            form["segments"],
            form["batches"],
            form["records"],
            form["bytes"],
            None if damage is None else Damage(**damage),
        )


def check_log(log: Log) -> Checked:
    """Read a log. One that is bad is quarantined from here on."""
    try:
        if log.corruption is not None:
            raise log.corruption.with_traceback(None)
        return good(log.partition, verify(log))
    except StorageError as error:
        return bad(log.partition, error)


def good(partition: TopicPartition, found: Verified) -> Checked:
    return Checked(partition, found.segments, found.batches, found.records, found.bytes, None)


def bad(partition: TopicPartition, error: StorageError) -> Checked:
    if isinstance(error, CorruptLogError):
        damage = Damage(error.reason, error.file, error.position, error.offset)
    else:
        damage = Damage(str(error))
    return Checked(partition, None, None, None, None, damage)
