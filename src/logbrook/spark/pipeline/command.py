"""`logbrook pipeline run`, behind its options: from a file to an exit code."""

import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from logbrook.config.errors import Problem
from logbrook.pipelines.report import REPORTS_TOPIC, RunState
from logbrook.pipelines.reporter import Reporter
from logbrook.spark.errors import SparkError, TopicMissingError
from logbrook.spark.pipeline.compiling import Compiler, Query
from logbrook.spark.pipeline.describing import describe
from logbrook.spark.pipeline.display import display_for
from logbrook.spark.pipeline.errors import (
    NoSparkError,
    PipelineRefusedError,
    ProgressExistsError,
    QueryFailedError,
    exit_code_of,
)
from logbrook.spark.pipeline.file import read_pipeline
from logbrook.spark.pipeline.python_file import check_file, name_of, queries_of, servers_of
from logbrook.spark.pipeline.reading import find_sources
from logbrook.spark.pipeline.reporting import ReportedRun, ReportingDisplay
from logbrook.spark.pipeline.running import Run
from logbrook.spark.pipeline.signals import StopSignals
from logbrook.spark.pipeline.spec import Pipeline
from logbrook.spark.sentences import sentence_of
from logbrook.spark.sessions import register, session

_STDERR = 2
_QUERY_LOGGER = "SQLQueryContextLogger"
_FOR_TOML = {"start": "--from", "bootstrap_servers": "--bootstrap-servers"}


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line says; None where it says nothing. `reports` is empty for none."""

    file: str
    dry_run: bool = False
    once: bool = False
    start: str | None = None
    bootstrap_servers: str | None = None
    checkpoint: str | None = None
    master: str | None = None
    reports: str | None = None
    verbose: bool = False


def run(request: Request, spark: SparkSession | None = None) -> int:
    """Run the pipeline and return the exit code; what is wrong is said on standard error.

    A session that is given is used for a session of its own, and left running.
    """
    command = _Command(request, spark)
    try:
        with command.signals:
            command.run()
    except SparkError as error:
        command.tell(error)
        return exit_code_of(error)
    finally:
        command.close()
    return 0


class _Command:
    def __init__(self, request: Request, spark: SparkSession | None) -> None:
        self.signals = StopSignals()
        self._request = request
        self._given = spark
        self._started: SparkSession | None = None
        self._log: str | None = None
        self._keeps_log = False

    def run(self) -> None:
        """Raises SparkError."""
        # Spark also writes every error in a query to standard output.
        logging.getLogger(_QUERY_LOGGER).disabled = not self._request.verbose
        if self._request.file.endswith(".py"):
            self._run_python()
        else:
            self._run_toml()

    def tell(self, error: SparkError) -> None:
        if isinstance(error, PipelineRefusedError):
            for problem in error.problems:
                _say_error(f"error: {problem}")
        else:
            self._keeps_log = isinstance(error, QueryFailedError | NoSparkError)
            log = f" (Spark's log: {self._log})" if self._keeps_log and self._log is not None else ""
            _say_error(f"error: {error}{log}")
        if self._request.verbose:
            _say_error(error.details if isinstance(error, QueryFailedError) else traceback.format_exc())

    def close(self) -> None:
        if self._started is not None:
            self._started.stop()
        if self._log is not None and not self._keeps_log:
            os.unlink(self._log)

    def _run_toml(self) -> None:
        request = self._request
        pipeline = read_pipeline(
            request.file, bootstrap_servers=request.bootstrap_servers, checkpoint=request.checkpoint
        )
        if request.once:
            pipeline = replace(pipeline, trigger_ms=None)
        if request.start is not None:
            refuse_progress(pipeline, request.start)
        topic = pipeline.reports if request.reports is None else request.reports
        with self._reported(pipeline.bootstrap_servers, topic, pipeline.name) as reported:
            readers = find_sources(pipeline, request.start)
            reported.tell(RunState.STARTING)
            with self._spark(f"logbrook {pipeline.name}", request.master or pipeline.master, pipeline.conf) as spark:
                compiled = Compiler(spark, pipeline, readers).compile()
                if request.dry_run:
                    print(describe(pipeline, compiled, readers))  # noqa: T201 - what the command is for
                    return
                self._run_queries(compiled.queries, f"pipeline {pipeline.name}", reported)

    def _run_python(self) -> None:
        request = self._request
        for name, flag in _FOR_TOML.items():
            if getattr(request, name) is not None:
                raise PipelineRefusedError([Problem("command line", f"{flag} is for a pipeline in a TOML file")])
        check_file(request.file)
        conf = {}
        if request.checkpoint is not None:
            conf["spark.sql.streaming.checkpointLocation"] = os.path.abspath(request.checkpoint)
        with self._spark(f"logbrook {os.path.basename(request.file)}", request.master, conf) as spark:
            queries = queries_of(request.file, spark)
            if request.dry_run:
                names = ", ".join(query.name for query in queries)
                print(f"pipeline {request.file}: {_counted(queries)}, {names}")  # noqa: T201
                return
            topic = REPORTS_TOPIC if request.reports is None else request.reports
            servers = servers_of(queries) if topic else None
            with self._reported(servers, topic, name_of(request.file)) as reported:
                reported.tell(RunState.STARTING)
                self._run_queries(queries, f"pipeline {request.file}", reported)

    def _run_queries(self, queries: Sequence[Query], what: str, reported: ReportedRun) -> None:
        display = ReportingDisplay(display_for(Console()), reported)
        display.say(f"{what}: {_counted(queries)}")
        Run(display, self.signals.asked).run(queries, once=self._request.once)
        reported.tell(RunState.STOPPED)
        reported.close()
        display.warn()
        display.say("stopped" if self.signals.asked.is_set() else "done")

    @contextmanager
    def _reported(self, servers: str | None, topic: str | None, name: str) -> Iterator[ReportedRun]:
        """Whatever ends the run with an error is reported too, unless it is not even known who could be told."""
        has_reports = servers and topic and not self._request.dry_run
        reported = ReportedRun(Reporter(servers or "", topic or "", name) if has_reports else None)
        try:
            yield reported
        except BaseException as error:
            if reported.has_begun or isinstance(error, TopicMissingError):
                reported.tell(RunState.FAILED, str(error) or type(error).__name__)
            raise
        finally:
            reported.close()

    @contextmanager
    def _spark(self, name: str, master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
        """Raises NoSparkError or JavaError."""
        if self._given is not None:
            spark = self._given.newSession()
            for setting, value in conf.items():
                spark.conf.set(setting, value)
            register(spark)
            yield spark
            return
        is_ours = SparkContext._active_spark_context is None
        with self._quiet():
            try:
                spark = session(name, master=master, conf=conf)
            except PySparkException as error:
                raise NoSparkError(f"Spark does not start: {sentence_of(error)}") from error
        self._started = spark if is_ours else None
        self.signals.install()
        yield spark

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Java inherits standard error as it is now, so all that Spark says of itself goes to a file."""
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


def refuse_progress(pipeline: Pipeline, start: str) -> None:
    """A start means nothing to a query that has progress, which would go on where it was and read nothing again.

    Raises ProgressExistsError, also for a checkpoint that is not a directory of this machine and cannot be looked at.
    """
    if "://" in pipeline.checkpoint:
        raise ProgressExistsError(start, f"{pipeline.checkpoint} cannot be looked at from here")
    below = [pipeline.checkpoint_of_sink(sink.name) for sink in pipeline.sinks]
    below += [pipeline.checkpoint_of_dead_letters(source.name) for source in pipeline.sources]
    for directory in below:
        offsets = os.path.join(directory, "offsets")
        if os.path.isdir(offsets) and os.listdir(offsets):
            raise ProgressExistsError(start, f"{pipeline.checkpoint} has its progress")


def _counted(queries: Sequence[Query]) -> str:
    return "1 query" if len(queries) == 1 else f"{len(queries)} queries"


def _say_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - what is wrong is said here
