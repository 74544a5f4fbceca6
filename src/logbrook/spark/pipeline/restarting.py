"""Restarts of a failed query from its checkpoint, with a delay that doubles from one to the next.

Spark ends a query for any error, including temporary ones, such as a Python process that does not start within ten
seconds on a busy machine. A restart is as safe as a new run of the pipeline: it repeats the micro-batch that failed.
There is none for errors that would occur again (`errors.is_permanent`).

Restarts are in a row as long as no micro-batch succeeds. A query that ran for longer than the largest delay has
recovered, too: it may have had nothing to process.
"""

import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from logbrook.spark.errors import QueryFailedError, is_permanent, summarize_error
from logbrook.spark.pipeline.compiling import PreparedQuery
from logbrook.spark.pipeline.display import QueryProgress
from logbrook.spark.pipeline.spec import RestartPolicy


class RestartableQuery:
    """A query of a pipeline over its starts. `query` is None before a start that is due later, at `start_at_s`."""

    def __init__(
        self, prepared: PreparedQuery, policy: RestartPolicy, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.state = QueryProgress(prepared.name)
        self.query: StreamingQuery | None = None
        self.start_at_s = clock_s()
        self._prepared = prepared
        self._policy = policy
        self._clock_s = clock_s
        self._failures = 0
        self._batch_id_at_failure: int | None = None

    @property
    def is_due(self) -> bool:
        return self.query is None and self._clock_s() >= self.start_at_s

    def start(self, *, once: bool) -> str | None:
        """Start the query, from its checkpoint if it has one. Returns a message if that fails and will be repeated.

        Raises QueryFailedError if it will not.
        """
        writer = self._prepared.writer.trigger(availableNow=True) if once else self._prepared.writer
        self.start_at_s = self._clock_s()
        try:
            self.query = writer.start()
        # Errors of the JVM and of Python have no common class.
        except Exception as error:
            return self._plan_restart(error)
        self.state.name = self.query.name or self.state.name
        return None

    def handle_failure(self) -> str | None:
        """Plan a restart if the query has failed, and return a message. Raises QueryFailedError if there is none."""
        if self.query is None or not self.state.is_done:
            return None
        error = self.query.exception()
        if error is not None:
            return self._plan_restart(error)
        # It has ended, possibly without a batch.
        self.state.error = None
        return None

    def _plan_restart(self, error: Exception) -> str:
        sentence = summarize_error(error)
        self._count_failure()
        if is_permanent(error) or self._failures > self._policy.attempts:
            raise QueryFailedError(self.state.name, sentence, str(error)) from error
        delay_s = self._policy.delay_s(self._failures)
        self.query, self.start_at_s = None, self._clock_s() + delay_s
        self.state.is_done, self.state.error = False, sentence
        self.state.restarts += 1
        attempt = f"restart {self._failures} of {self._policy.attempts}"
        return f"query {self.state.name!r} failed: {sentence.rstrip('.')}; {attempt} in {delay_s:g} s"

    def _count_failure(self) -> None:
        ran_s = self._clock_s() - self.start_at_s
        if self.state.batch_id != self._batch_id_at_failure or ran_s > self._policy.delay_ms_max / 1000:
            self._failures = 0
        self._failures += 1
        self._batch_id_at_failure = self.state.batch_id
