"""Telling the cluster how a run is, without making the run wait for it.

A thread says what was told last: at once when the state changes, and every few seconds, whether there is progress or
not, because silence means that the run is lost. What cannot be said is tried again with the next report, and is
nobody's error: `problem` has it for whoever wants to warn of it.
"""

import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from time import time

from logbrook.client import Client
from logbrook.model import LogbrookError
from logbrook.model.version import VERSION
from logbrook.pipelines.report import Report, RunState, SinkReport, SourceReport
from logbrook.pipelines.reports_topic import write_report

INTERVAL_S = 5.0
_ANSWER_S = 5.0
_CONNECT_S = 3.0
_LAST_WORD_S_MAX = 10.0


class Reporter:
    """Reports a run of `pipeline` to `topic`. `tell` and `close` belong to one thread, and do not raise.

    Nothing happens before the first `tell`. `close` returns when the last word is said, or after ten seconds.
    """

    def __init__(self, bootstrap_servers: str, topic: str, pipeline: str, *, interval_s: float = INTERVAL_S) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._pipeline = pipeline
        self._interval_s = interval_s
        self._host = socket.gethostname()
        self._latest: Report | None = None
        self._wake = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self.problem: str | None = None

    def tell(
        self,
        state: RunState,
        *,
        sinks: Sequence[SinkReport] = (),
        sources: Sequence[SourceReport] = (),
        error: str | None = None,
    ) -> None:
        """How the run is now."""
        before = self._latest
        is_new = before is None or before.state is not state
        now_ms = round(time() * 1000)
        self._latest = Report(
            pipeline=self._pipeline,
            state=state,
            since_ms=now_ms if before is None or is_new else before.since_ms,
            said_ms=now_ms,
            interval_ms=round(self._interval_s * 1000),
            host=self._host,
            pid=os.getpid(),
            version=VERSION,
            error=error,
            sinks=tuple(sinks),
            sources=tuple(sources),
        )
        if self._thread is None:
            # A cluster that does not answer must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name="pipeline-reports", daemon=True)
            self._thread.start()
        if is_new:
            self._wake.set()

    def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_LAST_WORD_S_MAX)

    def _run(self) -> None:
        client: Client | None = None
        said: Report | None = None
        try:
            while True:
                self._wake.wait(self._interval_s)
                self._wake.clear()
                is_last, latest = self._is_closing, self._latest
                assert latest is not None
                if not (is_last and latest is said and self.problem is None):
                    client = self._say(client, latest)
                    said = latest
                if is_last:
                    return
        finally:
            if client is not None:
                client.close()

    def _say(self, client: Client | None, report: Report) -> Client | None:
        """The client to go on with: after an error, a new one."""
        value = replace(report, said_ms=round(time() * 1000)).to_json()
        try:
            if client is None:
                client = Client(
                    self._servers,
                    client_id="logbrook-pipeline",
                    timeout_s=_ANSWER_S,
                    connect_timeout_s=_CONNECT_S,
                )
            write_report(client, self._topic, self._pipeline, value)
        # A ValueError is an address that is none.
        except (LogbrookError, ValueError) as error:
            self.problem = str(error)
            if client is not None:
                client.close()
            return None
        self.problem = None
        return client
