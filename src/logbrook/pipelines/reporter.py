"""Sending of pipeline reports from a background thread, so that the run never waits for the cluster.

The thread sends the latest report when the state changes and every `interval_s` seconds, even without progress, because
a silent run counts as lost. A failed send is retried with the next report and does not fail the run; `problem` holds
its message.

The reports topic is created on first use, compacted and with small segments, so that little has to be read to find the
latest report of each pipeline. Duplicate reports are harmless.
"""

import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from time import time

from logbrook.client import BrokerError, Client
from logbrook.client.partitioner import partition_of
from logbrook.client.retry import RetryPolicy
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.model import LogbrookError
from logbrook.model.version import VERSION
from logbrook.pipelines.report import PipelineReport, RunState, SinkReport, SourceReport
from logbrook.protocol.error_classes import UNKNOWN_TOPIC
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

INTERVAL_S = 5.0
_REQUEST_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 3.0
_CLOSE_S_MAX = 10.0


class PipelineReporter:
    """Reports a run of `pipeline` to `topic`. Call `report` and `close` from one thread; they do not raise.

    The thread starts with the first `report`. `close` returns when the last report is sent, or after ten seconds.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        pipeline: str,
        *,
        interval_s: float = INTERVAL_S,
        security: ClientSecurity = PLAINTEXT_SECURITY,
    ) -> None:
        self._servers = bootstrap_servers
        self._security = security
        self._topic = topic
        self._pipeline = pipeline
        self._interval_s = interval_s
        self._host = socket.gethostname()
        self._latest: PipelineReport | None = None
        self._wake = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self.problem: str | None = None

    def report(
        self,
        state: RunState,
        *,
        sinks: Sequence[SinkReport] = (),
        sources: Sequence[SourceReport] = (),
        error: str | None = None,
    ) -> None:
        """Set the current state and progress; a new state is sent at once."""
        previous = self._latest
        is_new = previous is None or previous.state is not state
        now_ms = round(time() * 1000)
        self._latest = PipelineReport(
            pipeline=self._pipeline,
            state=state,
            since_ms=now_ms if previous is None or is_new else previous.since_ms,
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
            # Daemon: an unresponsive cluster must not keep the process from exiting.
            self._thread = threading.Thread(target=self._run, name="pipeline-reports", daemon=True)
            self._thread.start()
        if is_new:
            self._wake.set()

    def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S_MAX)

    def _run(self) -> None:
        client: Client | None = None
        sent: PipelineReport | None = None
        try:
            while True:
                self._wake.wait(self._interval_s)
                self._wake.clear()
                is_last, latest = self._is_closing, self._latest
                assert latest is not None
                if not (is_last and latest is sent and self.problem is None):
                    client = self._send(client, latest)
                    sent = latest
                if is_last:
                    return
        finally:
            if client is not None:
                client.close()

    def _send(self, client: Client | None, report: PipelineReport) -> Client | None:
        """Send a report. Returns the client to reuse, or None after an error."""
        value = replace(report, said_ms=round(time() * 1000)).to_json()
        try:
            if client is None:
                client = Client(
                    self._servers,
                    client_id="logbrook-pipeline",
                    timeout_s=_REQUEST_TIMEOUT_S,
                    connect_timeout_s=_CONNECT_TIMEOUT_S,
                    security=self._security,
                )
            write_report(client, self._topic, self._pipeline, value)
        # Client raises ValueError for an invalid address.
        except (LogbrookError, ValueError) as error:
            self.problem = str(error)
            if client is not None:
                client.close()
            return None
        self.problem = None
        return client


_TOPIC_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}


def write_report(client: Client, topic: str, pipeline: str, value: bytes | None) -> None:
    """Write a report; None is a tombstone that removes the pipeline. Raises ClientError or ProtocolError."""
    count = _partition_count(client, topic)
    key = pipeline.encode()
    batch = build_batch([Record(key, value, (), round(time() * 1000))])
    # Metadata of a new topic takes time to reach every broker.
    retry = RetryPolicy(timeout_s=client.timeout_s)
    retry.run(lambda: client.produce(topic, partition_of(key, count), batch))


def _partition_count(client: Client, topic: str) -> int:
    def partition_count() -> int:
        return client.partition_count(topic)

    try:
        return RetryPolicy(timeout_s=client.timeout_s, final=UNKNOWN_TOPIC).run(partition_count)
    except BrokerError as error:
        if error.code not in UNKNOWN_TOPIC:
            raise
    try:
        client.create_topic(topic, 1, _TOPIC_CONFIG)
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return RetryPolicy(timeout_s=client.timeout_s).run(partition_count)
