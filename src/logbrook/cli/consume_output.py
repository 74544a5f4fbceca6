"""Records to standard output, no more of them than wanted, and up to where that is."""

from collections.abc import Sequence
from typing import BinaryIO

from logbrook.cli.record_format import Format
from logbrook.client.records_reader import RecordRun
from logbrook.model import TopicPartition


class RecordOutput:
    """`count` is how many are wanted, None for all."""

    def __init__(self, form: Format, stream: BinaryIO, count: int | None) -> None:
        self._form = form
        self._stream = stream
        self._left = count

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def write(self, runs: Sequence[RecordRun]) -> dict[TopicPartition, int]:
        """Returns from where each partition goes on, once all that is before is with whoever reads it."""
        printed: dict[TopicPartition, int] = {}
        for run in runs:
            if self.is_full:
                break
            records = run.records if self._left is None else run.records[: self._left]
            form, partition = self._form, run.partition
            self._stream.write(b"".join([form(partition, record) for record in records]))
            is_whole = len(records) == len(run.records)
            printed[partition] = run.next_offset if is_whole else records[-1].offset + 1
            if self._left is not None:
                self._left -= len(records)
        if printed:
            self._stream.flush()
        return printed
