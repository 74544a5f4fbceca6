"""`logbrook pipeline run`: from the parsed command line to an exit code.

The first SIGINT or SIGTERM stops the queries after their current micro-batch, the second ends the process.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import FrameType, TracebackType
from typing import Any, Self

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from logbrook.client.security import ClientSecurity
from logbrook.config.errors import Problem
from logbrook.pipelines.report import REPORTS_TOPIC, RunState
from logbrook.pipelines.reporter import PipelineReporter
from logbrook.spark.application_files import driver_directory
from logbrook.spark.errors import (
    CheckpointExistsError,
    InvalidPipelineError,
    JvmEndedError,
    MissingTopicError,
    NoSparkError,
    QueryFailedError,
    SparkError,
    exit_code_of,
    summarize_error,
)
from logbrook.spark.jvm import py4j_silenced, stop_spark
from logbrook.spark.options import OptionReader
from logbrook.spark.pipeline.compiling import PipelineCompiler, PreparedQuery, describe
from logbrook.spark.pipeline.display import display_for
from logbrook.spark.pipeline.file import read_pipeline
from logbrook.spark.pipeline.maintaining import MaintainingDisplay, TableMaintenance
from logbrook.spark.pipeline.outage_watch import OutageWatch
from logbrook.spark.pipeline.python_file import check_file, cluster_options_of, name_of, queries_of
from logbrook.spark.pipeline.running import QueryRunner, ReportedRun, ReportingDisplay
from logbrook.spark.pipeline.schedule import Schedule, run_on_schedule
from logbrook.spark.pipeline.sources import resolve_sources
from logbrook.spark.pipeline.spec import NO_RESTARTS, PipelineSpec, RestartPolicy
from logbrook.spark.sessions import register, session
from logbrook.spark.tables.hadoop_settings import session_settings
from logbrook.spark.tables.location import resolve_beside, scheme_of

_STDERR = 2
_WAITING_REPORT_S = 5.0
_QUERY_LOGGER = "SQLQueryContextLogger"
_TOML_ONLY_FLAGS = {"start": "--from", "bootstrap_servers": "--bootstrap-servers"}


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Options of the command line; None where not given. An empty `reports` disables reporting."""

    file: str
    # Only check the pipeline and print its description.
    checks_only: bool = False
    explain: bool = False
    once: bool = False
    start: str | None = None
    bootstrap_servers: str | None = None
    checkpoint: str | None = None
    master: str | None = None
    reports: str | None = None
    verbose: bool = False
    # Security options of the command line, as options of readers and writers; they win over the file's.
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


def run(request: RunRequest, spark: SparkSession | None = None) -> int:
    """Run the pipeline and return the exit code; errors are printed to standard error.

    Of a given `spark` a new session is used, and it is left running.
    """
    command = _PipelineCommand(request, spark)
    try:
        with command.signals, command.quiet_logs():
            command.run()
    except SparkError as error:
        command.print_error(error)
        return exit_code_of(error)
    finally:
        command.close()
    return 0


class _PipelineCommand:
    """One run: signals, Spark session, Spark's log file."""

    def __init__(self, request: RunRequest, spark: SparkSession | None) -> None:
        self.signals = StopSignals()
        self._request = request
        self._given_spark = spark
        self._started_spark: SparkSession | None = None
        self._log: str | None = None
        self._keeps_log = False
        self._tables = TableMaintenance([])

    @contextmanager
    def quiet_logs(self) -> Iterator[None]:
        """Keep the tracebacks of PySpark and Py4J out of the output: errors are reported in one sentence."""
        # This logger prints every query error to standard output.
        logging.getLogger(_QUERY_LOGGER).disabled = not self._request.verbose
        with nullcontext() if self._request.verbose else py4j_silenced():
            yield

    def run(self) -> None:
        """Raises SparkError."""
        if self._request.file.endswith(".py"):
            self._run_python()
        else:
            self._run_toml()

    def print_error(self, error: SparkError) -> None:
        if isinstance(error, InvalidPipelineError):
            for problem in error.problems:
                _print_error(f"error: {problem}")
        else:
            self._keeps_log = isinstance(error, QueryFailedError | JvmEndedError | NoSparkError)
            log = f" (Spark's log: {self._log})" if self._keeps_log and self._log is not None else ""
            _print_error(f"error: {error}{log}")
        if self._request.verbose:
            _print_error(error.details if isinstance(error, QueryFailedError) else traceback.format_exc())

    def close(self) -> None:
        if self._started_spark is not None:
            stop_spark(self._started_spark)
        if self._log is not None and not self._keeps_log:
            os.unlink(self._log)

    def _run_toml(self) -> None:
        request = self._request
        pipeline = read_pipeline(
            request.file, bootstrap_servers=request.bootstrap_servers, checkpoint=request.checkpoint
        )
        pipeline = replace(pipeline, client={**pipeline.client, **request.client})
        if request.once:
            pipeline = replace(pipeline, trigger_ms=None, schedule=None)
        if request.start is not None:
            reject_existing_checkpoint(pipeline, request.start)
        topic = pipeline.reports if request.reports is None else request.reports
        security = OptionReader(pipeline.client).security()
        with self._reporting(pipeline.bootstrap_servers, topic, pipeline.name, security) as reports:
            readers = resolve_sources(pipeline, request.start)
            reports.send(RunState.STARTING)
            with self._spark(f"logbrook {pipeline.name}", request.master or pipeline.master, pipeline.conf) as spark:
                compiled = PipelineCompiler(spark, pipeline, readers).compile()
                if request.checks_only:
                    print(describe(pipeline, compiled, readers, with_plans=request.explain))  # noqa: T201 - output
                    return
                self._tables = TableMaintenance(pipeline.sinks, session_settings(spark))
                title = f"pipeline {pipeline.name}"
                if pipeline.schedule is None:
                    self._run_queries(compiled.queries, title, reports, pipeline.restart)
                else:
                    # Compiled again for each run, so that it sees the static tables and files of its time.
                    compile_again = PipelineCompiler(spark, pipeline, readers).compile
                    self._run_on_schedule(
                        pipeline.schedule, lambda: compile_again().queries, title, reports, pipeline.restart
                    )

    def _run_python(self) -> None:
        request = self._request
        for name, flag in _TOML_ONLY_FLAGS.items():
            if getattr(request, name) is not None:
                raise InvalidPipelineError([Problem("command line", f"{flag} is for a pipeline in a TOML file")])
        check_file(request.file)
        conf = {}
        if request.checkpoint is not None:
            conf["spark.sql.streaming.checkpointLocation"] = resolve_beside(os.getcwd(), request.checkpoint)
        with self._spark(f"logbrook {os.path.basename(request.file)}", request.master, conf) as spark:
            queries = queries_of(request.file, spark)
            if request.checks_only:
                names = ", ".join(query.name for query in queries)
                print(f"pipeline {request.file}: {_counted(queries)}, {names}")  # noqa: T201
                return
            topic = REPORTS_TOPIC if request.reports is None else request.reports
            cluster = OptionReader(cluster_options_of(queries) if topic else {})
            servers, security = cluster.text("bootstrap.servers"), cluster.security()
            with self._reporting(servers, topic, name_of(request.file), security) as reports:
                reports.send(RunState.STARTING)
                # Without a name or a checkpoint of its own, a query would start from the beginning.
                self._run_queries(queries, f"pipeline {request.file}", reports, NO_RESTARTS)

    def _run_queries(
        self, queries: Sequence[PreparedQuery], title: str, reports: ReportedRun, restart: RestartPolicy
    ) -> None:
        display = ReportingDisplay(display_for(Console()), reports)
        display.print(f"{title}: {_counted(queries)}")
        stop = self.signals.stop_requested
        with self._tables.until_closed(display.print):
            self._runner(display, restart).run(queries, once=self._request.once)
            if not stop.is_set():
                # The queries have processed all available records and ended.
                self._tables.run_all(display.print)
        reports.send(RunState.STOPPED)
        reports.close()
        display.warn_once()
        display.print("stopped" if self.signals.stop_requested.is_set() else "done")

    def _run_on_schedule(
        self,
        schedule: Schedule,
        queries: Callable[[], Sequence[PreparedQuery]],
        title: str,
        reports: ReportedRun,
        restart: RestartPolicy,
    ) -> None:
        """Process the available records now and at each time of the schedule, until a stop is requested."""
        display = ReportingDisplay(display_for(Console()), reports)
        display.print(f"{title}: on schedule, {schedule.text}")
        stop_requested = self.signals.stop_requested

        def wait_until(next_s: float) -> bool:
            if not stop_requested.is_set():
                at = f"{datetime.fromtimestamp(next_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
                display.print(f"done; the next run is at {at}")
            while (wait_s := next_s - time.time()) > 0 and not stop_requested.is_set():
                reports.send(RunState.WAITING)
                stop_requested.wait(min(wait_s, _WAITING_REPORT_S))
            return not stop_requested.is_set()

        def run() -> None:
            self._runner(display, restart).run(queries(), once=True)
            if not stop_requested.is_set():
                self._tables.run_due(display.print)

        with self._tables.until_closed(display.print):
            run_on_schedule(schedule, run, time.time, wait_until)
        reports.send(RunState.STOPPED)
        reports.close()
        display.print("stopped")

    def _runner(self, display: ReportingDisplay, restart: RestartPolicy) -> QueryRunner:
        outages = OutageWatch(driver_directory())
        stop_requested = self.signals.stop_requested
        return QueryRunner(MaintainingDisplay(display, self._tables), stop_requested, restart=restart, outages=outages)

    @contextmanager
    def _reporting(
        self, servers: str | None, topic: str | None, name: str, security: ClientSecurity
    ) -> Iterator[ReportedRun]:
        """Report also the error that ends the run, if a report was already sent or a topic is missing."""
        has_reports = servers and topic and not self._request.checks_only
        reporter = PipelineReporter(servers or "", topic or "", name, security=security) if has_reports else None
        reports = ReportedRun(reporter)
        try:
            yield reports
        except BaseException as error:
            if reports.has_begun or isinstance(error, MissingTopicError):
                reports.send(RunState.FAILED, str(error) or type(error).__name__)
            raise
        finally:
            reports.close()

    @contextmanager
    def _spark(self, name: str, master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
        """Raises NoSparkError or JavaError."""
        if self._given_spark is not None:
            spark = self._given_spark.newSession()
            for setting, value in conf.items():
                spark.conf.set(setting, value)
            register(spark)
            yield spark
            return
        is_ours = SparkContext._active_spark_context is None
        with self._spark_log_to_file():
            try:
                spark = session(name, master=master, conf=conf)
            except PySparkException as error:
                raise NoSparkError(f"Spark does not start: {summarize_error(error)}") from error
        self._started_spark = spark if is_ours else None
        self.signals.install()
        yield spark

    @contextmanager
    def _spark_log_to_file(self) -> Iterator[None]:
        """Redirect standard error to a file while the JVM starts, which inherits it: Spark's log goes there."""
        if self._request.verbose:
            yield
            return
        descriptor, self._log = tempfile.mkstemp(prefix="logbrook-spark-", suffix=".log")
        sys.stderr.flush()
        saved = os.dup(_STDERR)
        os.dup2(descriptor, _STDERR)
        try:
            yield
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)
            os.close(descriptor)


def reject_existing_checkpoint(pipeline: PipelineSpec, start: str) -> None:
    """Reject `--from` for a pipeline with a checkpoint, whose queries would ignore it and resume there.

    Raises CheckpointExistsError, also for a checkpoint URI, which cannot be inspected from here.
    """
    if scheme_of(pipeline.checkpoint) is not None:
        raise CheckpointExistsError(start, f"{pipeline.checkpoint} cannot be inspected from here")
    checkpoints = [pipeline.checkpoint_of_sink(sink.name) for sink in pipeline.sinks]
    checkpoints += [pipeline.checkpoint_of_dead_letters(source.name) for source in pipeline.sources]
    for directory in checkpoints:
        offsets = os.path.join(directory, "offsets")
        if os.path.isdir(offsets) and os.listdir(offsets):
            raise CheckpointExistsError(start, f"{pipeline.checkpoint} already holds its offsets")


def _counted(queries: Sequence[PreparedQuery]) -> str:
    return "1 query" if len(queries) == 1 else f"{len(queries)} queries"


def _print_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - errors of the command


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Context manager that handles SIGINT and SIGTERM: the first sets `stop_requested`, the second exits at once.

    Only the main thread can install handlers; in another thread it does nothing.
    """

    def __init__(self) -> None:
        self.stop_requested = threading.Event()
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
        self.install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._previous.items():
                signal.signal(number, handler)

    def install(self) -> None:
        """Install the handlers; call again after Spark has started, which replaces the one for SIGINT."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signature of a signal handler
        if self.stop_requested.is_set():
            # The JVM exits when its standard input, a pipe from this process, is closed.
            os._exit(128 + number)
        self.stop_requested.set()
