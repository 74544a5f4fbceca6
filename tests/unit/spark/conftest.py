"""Spark's task context without Spark, and connections of its tasks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import TaskContext

StartTask = Callable[..., None]


@pytest.fixture
def start_task(monkeypatch: pytest.MonkeyPatch) -> StartTask:
    """Make the calling thread look like a task: of a plain batch query, or of a micro-batch if `batch_id` is given."""

    def start(
        batch_id: int | None = None,
        *,
        query_id: str = "query",
        run_id: str = "11111111-1111-1111-1111-111111111111",
        stage_id: int = 0,
        task: int = 0,
    ) -> None:
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        properties = {"spark.jobGroup.id": run_id}
        if batch_id is not None:
            properties |= {"streaming.sql.batchId": str(batch_id), "sql.streaming.queryId": query_id}
        TaskContext(stageId=stage_id, partitionId=task, localProperties=properties)

    return start


@pytest.fixture
def own_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the connections that are kept for the next task."""
    from logbrook.spark import fetching  # noqa: PLC0415 - it loads numba, which few tests need

    clients: dict[Any, Any] = {}
    monkeypatch.setattr(fetching, "_clients", clients)
    yield
    for client in clients.values():
        client.close()
