"""Worker processes that run the loads, and the harness's side of them.

A request is a line of JSON on the worker's standard input, a result or an error a line on its standard output. A worker
ends when its input is closed or when it is killed.
"""

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from bench.peers.load import Job, Load, LoadError, Spent

_ROOT = Path(__file__).parents[2]
VERBS = frozenset(
    {
        "ready",
        "create",
        "delete",
        "produce",
        "consume",
        "consume_passes",
        "fan_out",
        "small_requests",
        "idle_groups",
        "fill_keyed",
        "set_topic_config",
        "acknowledged",
        "send_stamped",
        "receive_stamped",
        "wait_for_ack",
        "rebalance",
        "transactions",
    }
)


class Workers:
    """A pool that grows to as many workers as run at once. Workers are reused, so that no run includes their start."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._busy: dict[Future[Any], _Worker] = {}
        self._threads = ThreadPoolExecutor(max_workers=32)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._all:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._all:
            worker.close()

    def call(self, load: str, verb: str, job: Job) -> Any:
        """Return the result. Raises LoadError with the worker's error."""
        return self.begin(load, verb, job).result()

    def begin(self, load: str, verb: str, job: Job) -> Future[Any]:
        worker = self._idle.pop() if self._idle else self._new()
        future = self._threads.submit(self._run, worker, {"load": load, "verb": verb, "job": asdict(job)})
        self._busy[future] = worker
        future.add_done_callback(self._busy.pop)
        return future

    def cancel(self, future: Future[Any]) -> None:
        """Cancel a call in flight by killing its worker; the future fails with LoadError."""
        worker = self._busy.get(future)
        if worker is None:
            return
        if worker in self._idle:
            self._idle.remove(worker)
        self._all.remove(worker)
        worker.kill()
        future.exception()
        worker.close()

    def spend(self, load: str, verb: str, jobs: list[Job]) -> Spent:
        """Run the jobs at once and return the total, from the first start to the last end."""
        futures = [self.begin(load, verb, job) for job in jobs]
        parts = [Spent(**future.result()) for future in futures]
        return Spent(
            sum(part.messages for part in parts),
            min(part.started_s for part in parts),
            max(part.ended_s for part in parts),
            sum(part.cpu_s for part in parts),
            sum(part.server_cpu_s for part in parts),
        )

    def _new(self) -> "_Worker":
        worker = _Worker()
        self._all.append(worker)
        return worker

    def _run(self, worker: "_Worker", request: dict[str, Any]) -> Any:
        response = worker.call(request)
        self._idle.append(worker)
        if "error" in response:
            raise LoadError(response["error"])
        return response["result"]


class _Worker:
    def __init__(self) -> None:
        # In its own process group, so that Ctrl-C reaches only the harness, which then stops the workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            process_group=0,
        )

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LoadError("the load's process has exited; its error output is above")
        response: dict[str, Any] = json.loads(line)
        return response

    def kill(self) -> None:
        """Kill the process; a pending `call` raises LoadError."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def load_named(name: str) -> Load:
    """Return the load. Imports only its own client, so that a worker for Redis needs no Kafka client."""
    if name == "kafka":
        from bench.peers.kafka_load import KafkaLoad  # noqa: PLC0415

        return KafkaLoad()
    if name == "redis":
        from bench.peers.redis_load import RedisLoad  # noqa: PLC0415

        return RedisLoad()
    if name == "nats":
        from bench.peers.nats_load import NatsLoad  # noqa: PLC0415

        return NatsLoad()
    raise ValueError(f"there is no load named {name}")


def main(requests: TextIO, responses: TextIO) -> None:
    """Run the worker's side: call each request's verb on its load."""
    for line in requests:
        request = json.loads(line)
        assert request["verb"] in VERBS, request["verb"]
        load = load_named(request["load"])
        try:
            result = getattr(load, request["verb"])(Job(**request["job"]))
            response = {"result": result.as_json() if isinstance(result, Spent) else result}
        except Exception as error:
            # Any error is reported to the harness, which raises it as LoadError.
            response = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(response), file=responses, flush=True)


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
