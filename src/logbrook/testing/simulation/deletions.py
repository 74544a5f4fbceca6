"""Deletion of records in a simulation: an administrator who deletes them, and what must hold of them.

Records below an offset that was requested may be gone. Records below one whose deletion was acknowledged are, whatever
happens later, and no others.
"""

from random import Random

from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from logbrook.testing.simulation.client import WorkloadClient

# A new leader may not have heard yet that the records are committed.
_EXPECTED = RETRIABLE | {ErrorCode.OFFSET_OUT_OF_RANGE}
_VERSION = 2


class DeletionWorkload:
    """One administrator. Call `run_one` again and again, with whatever connection there is."""

    def __init__(self, seed: int, topic: str, timeout_ms: int) -> None:
        self._random = Random(f"{seed}/deletions")
        self._topic = topic
        self._timeout_ms = timeout_ms
        # By partition: the largest offset up to which records were to be deleted, and that of an answer.
        self.requested: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}

    async def run_one(self, client: WorkloadClient, partition: int, end_offset: int) -> None:
        """Delete records of a partition that has records up to `end_offset`. Raises OSError."""
        start_offset = self.requested.get(partition, 0)
        if end_offset <= start_offset:
            return
        offset = self._random.randint(start_offset, end_offset)
        self.requested[partition] = offset
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=self._topic, partitions=[wanted])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        response = await client.request(request, DeleteRecordsResponse, _VERSION)
        result = response.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            assert result.low_watermark >= offset, f"deleted up to {result.low_watermark}, not {offset}"
            self._acknowledged[partition] = offset
        else:
            assert result.error_code in _EXPECTED, f"DeleteRecords got {ErrorCode(result.error_code).name}"

    def may_be_gone(self, partition: int, offset: int) -> bool:
        return offset < self.requested.get(partition, 0)

    def check(self, partition: int, log_start_offset: int) -> None:
        """Compare with the first offset of a partition at the end."""
        least = self._acknowledged.get(partition, 0)
        most = self.requested.get(partition, 0)
        assert least <= log_start_offset <= most, (
            f"partition {partition} starts at {log_start_offset}; deleted up to {least}, requested up to {most}"
        )
