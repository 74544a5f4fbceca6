"""The processes that the loads run in, and how the harness talks to them."""

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.peers.load import Job, LoadError, Spent

_ROOT = Path(__file__).parents[2]


class Workers:
    """As many as are needed at once; they stay, so that no run pays for the start of an interpreter."""

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
        """Raises LoadError with what the worker said."""
        return self.begin(load, verb, job).result()

    def begin(self, load: str, verb: str, job: Job) -> Future[Any]:
        worker = self._idle.pop() if self._idle else self._new()
        future = self._threads.submit(self._run, worker, {"load": load, "verb": verb, "job": asdict(job)})
        self._busy[future] = worker
        future.add_done_callback(self._busy.pop)
        return future

    def give_up(self, future: Future[Any]) -> None:
        """End the process of a call that would go on for long, and the call with it."""
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
        """All of them at once: from the start of the first to the end of the last."""
        futures = [self.begin(load, verb, job) for job in jobs]
        parts = [Spent(**future.result()) for future in futures]
        return Spent(
            sum(part.messages for part in parts),
            min(part.started_s for part in parts),
            max(part.ended_s for part in parts),
            sum(part.cpu_s for part in parts),
        )

    def _new(self) -> "_Worker":
        worker = _Worker()
        self._all.append(worker)
        return worker

    def _run(self, worker: "_Worker", question: dict[str, Any]) -> Any:
        answer = worker.ask(question)
        self._idle.append(worker)
        if "error" in answer:
            raise LoadError(answer["error"])
        return answer["result"]


class _Worker:
    def __init__(self) -> None:
        # A group of its own: Ctrl-C is for the harness, which then ends the workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            process_group=0,
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LoadError("the load's process has ended; what it said is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """Whoever waits for its answer hears of its end."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
