"""The acknowledged and the read record at each offset of a simulation. A second, different one is a violation."""

from dataclasses import dataclass, field


@dataclass
class ClientHistory:
    """Everything that clients were told."""

    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    read: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def on_acknowledged(self, partition: int, offset: int, value: bytes) -> None:
        other = self.acknowledged.setdefault((partition, offset), value)
        assert other == value, f"{value!r} and {other!r} were both acknowledged at {partition}/{offset}"

    def on_read(self, partition: int, offset: int, value: bytes) -> None:
        other = self.read.setdefault((partition, offset), value)
        assert other == value, f"{partition}/{offset} was read as {other!r} and as {value!r}"
