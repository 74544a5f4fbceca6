"""What the commands that are jobs on Spark share: a session, how far it is, and errors in one sentence.

Exit codes: 2 for wrong options, 3 when the cluster cannot be asked or lacks a topic, 4 when the job fails, 5 without a
working Spark.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logbrook.spark.exit_codes import FAILED, NO_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.5
_SAY_S = 10.0

Servers = Annotated[str, typer.Option("--bootstrap-servers", "-b", metavar="HOST:PORT", help="The cluster.")]
Master = Annotated[str | None, typer.Option("--master", help="Spark's master URL; local[*] without.")]
From = Annotated[
    str | None, typer.Option("--from", help="Where to begin: earliest, -1h, a time in ms, or offsets as JSON.")
]
To = Annotated[str | None, typer.Option("--to", help="Where to end: latest, -1h, a time in ms, or offsets as JSON.")]


@contextmanager
def spark_job(what: str, master: str | None, reading: Mapping[str, str] | None = None) -> Iterator["SparkSession"]:
    """A session for the job, which goes with it. What goes wrong is said in one sentence and ends the command.

    `reading`, the options of a batch read, are tried before: Spark takes its time to start, a typo is found at once.
    """
    try:
        from logbrook.spark import session  # noqa: PLC0415
        from logbrook.spark.errors import SparkError  # noqa: PLC0415
        from logbrook.spark.pipeline.errors import exit_code_of  # noqa: PLC0415
        from logbrook.spark.planner import Planner  # noqa: PLC0415
        from logbrook.spark.read_options import read_options  # noqa: PLC0415
        from logbrook.spark.sentences import our_error, sentence_of  # noqa: PLC0415
    except ImportError as error:
        _stop(f"this needs Spark, and {error.name or error} is not installed: pip install 'logbrook[spark]'", NO_SPARK)
    try:
        if reading is not None:
            with closing(Planner(read_options(reading, is_batch=True))) as planner:
                planner.topics()
        spark = session(f"logbrook {what}", master=master)
    except SparkError as error:
        _stop(str(error), exit_code_of(error))
    try:
        with _watched(spark, what):
            yield spark
    except SparkError as error:
        _stop(str(error), exit_code_of(error))
    except KeyboardInterrupt:
        spark.sparkContext.cancelAllJobs()
        _stop("stopped", 130)
    except Exception as error:
        # Spark's own errors have no common root that is worth naming; those of ours come wrapped in them.
        if our_error(str(error)) is None and not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        _stop(sentence_of(error), FAILED)
    finally:
        spark.stop()


def topic_options(servers: str, topics: str, starting: str | None, ending: str | None) -> dict[str, str]:
    """The options of a batch read of these topics."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topics}
    for edge, text in (("starting", starting), ("ending", ending)):
        if text is not None:
            is_time = text.isdecimal()
            options[f"{edge}Timestamp" if is_time else f"{edge}Offsets"] = text
    return options


@contextmanager
def _watched(spark: Any, what: str) -> Iterator[None]:
    """Says how many tasks are done: on a terminal all the time, elsewhere now and then."""
    done = Event()
    thread = Thread(target=_watch, args=(spark.sparkContext.statusTracker(), what, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _watch(tracker: Any, what: str, done: Event) -> None:
    is_terminal = sys.stderr.isatty()
    waited_s = 0.0
    while not done.wait(_LOOK_S):
        waited_s += _LOOK_S
        stages = [info for one in tracker.getActiveStageIds() if (info := tracker.getStageInfo(one))]
        tasks, completed = sum(one.numTasks for one in stages), sum(one.numCompletedTasks for one in stages)
        line = f"{what}: {completed} of {tasks} tasks, {waited_s:.0f} s" if tasks else f"{what}: {waited_s:.0f} s"
        if is_terminal:
            typer.echo(f"\r\x1b[2K{line}", nl=False, err=True)
        elif waited_s % _SAY_S < _LOOK_S:
            typer.echo(line, err=True)
    if is_terminal:
        typer.echo("\r\x1b[2K", nl=False, err=True)


def _stop(sentence: str, code: int) -> Any:
    typer.echo(f"error: {sentence}", err=True)
    raise typer.Exit(code)
