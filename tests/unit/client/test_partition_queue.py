"""The order, the waits and the retries of the batches of one partition, at times that the test sets."""

import pytest

from logbrook.client import ClientError, RetryPolicy
from logbrook.client.partition_queue import PartitionQueue, QueuedBatch
from logbrook.client.retry import FailedTry

LEADER = ("a", 1)
LATER_S = 1000.0


def queue_of(count: int) -> tuple[PartitionQueue, list[QueuedBatch]]:
    queue = PartitionQueue("t", 3, RetryPolicy(jitter=0.0))
    batches = [QueuedBatch(queue, b"", LATER_S) for _ in range(count)]
    queue.batches.extend(batches)
    return queue, batches


def send(queue: PartitionQueue, now_s: float = 0.0) -> QueuedBatch | None:
    batch = queue.next_to_send(now_s)
    if batch is not None:
        queue.mark_sent(LEADER)
    return batch


def test_batches_are_sent_in_order_once_the_first_is_written() -> None:
    queue, batches = queue_of(3)
    assert [send(queue), send(queue)] == [batches[0], None]
    queue.mark_written(batches[0])
    assert [send(queue), send(queue), send(queue)] == [*batches[1:], None]


def test_after_a_failure_sending_waits_for_all_requests_in_flight() -> None:
    queue, batches = queue_of(4)
    send(queue)
    queue.mark_written(batches[0])
    assert [send(queue), send(queue), send(queue)] == batches[1:]
    queue.mark_failed(ClientError("no"), 0.0)
    assert send(queue, LATER_S) is None
    queue.mark_written(batches[2])
    assert send(queue, LATER_S) is None
    queue.mark_failed(ClientError("no"), 0.0)
    assert [send(queue, LATER_S), send(queue, LATER_S)] == [batches[1], batches[3]]


def test_the_wait_grows_with_each_failure_in_a_row_up_to_a_second() -> None:
    queue, batches = queue_of(2)
    waits = []
    for now_s in range(0, 60, 10):
        assert send(queue, now_s) is batches[0]
        queue.mark_failed(ClientError(f"no {now_s}"), now_s)
        assert send(queue, queue.retry_at_s - 0.01) is None
        waits.append(queue.retry_at_s - now_s)
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert str(queue.last_error) == "no 50"
    send(queue, 60)
    queue.mark_written(batches[0])
    send(queue, 60)
    queue.mark_failed(ClientError("no"), 60.0)
    assert queue.retry_at_s == pytest.approx(60.1)


def test_the_hook_of_the_policy_is_called_before_each_wait() -> None:
    tries: list[FailedTry] = []
    queue = PartitionQueue("t", 3, RetryPolicy(jitter=0.0, on_retry=tries.append))
    errors = [ClientError("first"), ClientError("second")]
    for error in errors:
        queue.back_off(error, 0.0)
    assert [(failed.error, failed.failures) for failed in tries] == [(errors[0], 1), (errors[1], 2)]
    assert [failed.wait_s for failed in tries] == pytest.approx([0.1, 0.2])
