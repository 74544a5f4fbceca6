"""The progress of the clients of a chaos test after a fault: each must go on by itself."""

from logbrook.model import TopicPartition
from logbrook.testing.history.events import Acknowledged, Committed, TransactionCommitted
from logbrook.testing.kill.load import ClientLoad
from logbrook.testing.kill.load_client import LoadState
from logbrook.testing.processes import wait_until

_PROGRESS_S_MAX = 60.0
_POLL_S = 0.02


class NoProgressError(TimeoutError):
    """Clients did not go on after the cluster was healthy again."""


class ClientProgress:
    """Waits until every producer and group has succeeded again, and every partition was written to."""

    def __init__(self, state: LoadState, load: ClientLoad) -> None:
        self._state = state
        self._writers = {client.name for client in load.writers}
        self._groups = load.groups

    def wait(self) -> None:
        """Raises NoProgressError."""
        state = self._state
        seen = state.recorder.count
        missing: set[object] = {*self._writers, *self._groups, *state.partitions, "transactions"}

        def is_complete() -> bool:
            nonlocal seen
            events = state.recorder.since(seen)
            seen += len(events)
            for event in events:
                if isinstance(event, Acknowledged):
                    missing.discard(event.producer.rpartition(".")[0])
                    missing.discard(TopicPartition(*event.partition))
                elif isinstance(event, TransactionCommitted):
                    missing.discard("transactions")
                elif isinstance(event, Committed):
                    missing.discard(event.group)
            # A client that has failed is reported as a problem.
            return not missing or bool(state.problems)

        if not wait_until(is_complete, _PROGRESS_S_MAX, _POLL_S):
            names = ", ".join(sorted(map(str, missing)))
            raise NoProgressError(f"no progress of {names} in {_PROGRESS_S_MAX:.0f} s with all replicas in sync")
