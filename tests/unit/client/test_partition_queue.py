"""Which batch of a partition may go, at moments that the test chooses."""

import pytest

from logbrook.client import ClientError
from logbrook.client.partition_queue import PartitionQueue, QueuedBatch

LEADER = ("a", 1)
LATER_S = 1000.0


def queue_of(count: int) -> tuple[PartitionQueue, list[QueuedBatch]]:
    queue = PartitionQueue("t", 3)
    batches = [QueuedBatch(queue, b"", LATER_S) for _ in range(count)]
    queue.batches.extend(batches)
    return queue, batches


def send(queue: PartitionQueue, now_s: float = 0.0) -> QueuedBatch | None:
    batch = queue.next_to_send(now_s)
    if batch is not None:
        queue.sent(LEADER)
    return batch


def test_batches_go_in_order_once_the_first_is_written() -> None:
    queue, batches = queue_of(3)
    assert [send(queue), send(queue)] == [batches[0], None]
    queue.written(batches[0])
    assert [send(queue), send(queue), send(queue)] == [*batches[1:], None]


def test_a_failure_is_waited_out_until_all_behind_it_are_answered() -> None:
    queue, batches = queue_of(4)
    send(queue)
    queue.written(batches[0])
    assert [send(queue), send(queue), send(queue)] == batches[1:]
    queue.failed(ClientError("no"), 0.0)
    assert send(queue, LATER_S) is None
    queue.written(batches[2])
    assert send(queue, LATER_S) is None
    queue.failed(ClientError("no"), 0.0)
    assert [send(queue, LATER_S), send(queue, LATER_S)] == [batches[1], batches[3]]


def test_the_wait_grows_with_each_failure_in_a_row_up_to_a_second() -> None:
    queue, batches = queue_of(2)
    waits = []
    for now_s in range(0, 60, 10):
        assert send(queue, now_s) is batches[0]
        queue.failed(ClientError(f"no {now_s}"), now_s)
        assert send(queue, queue.try_at_s - 0.01) is None
        waits.append(queue.try_at_s - now_s)
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert str(queue.last_error) == "no 50"
    send(queue, 60)
    queue.written(batches[0])
    send(queue, 60)
    queue.failed(ClientError("no"), 60.0)
    assert queue.try_at_s == pytest.approx(60.1)
