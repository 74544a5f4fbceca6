"""Contract between the coordinator runtime of the server and the state machines in `core`.

A coordinator (groups, transactions) is split into shards, one per partition of its internal topic. A shard decides and
returns records; the runtime appends them and feeds them back:

- Records are replayed into the shard as soon as they are appended, before the next decision. When a shard is loaded,
  the records of the log are replayed in the same way, followed by one `finish_loading`.
- A reply is released when every record that was appended to the shard before the reply was decided is committed. So a
  shard may answer from records that are not committed yet.
- An append that is refused changes nothing: its records are not replayed, and the caller gets the error.
- When an appended record fails to commit, the replies fail and the shard is discarded and loaded again from the log.
  There is no rollback.
"""

from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from logbrook.model import LogbrookError
from logbrook.model.identifiers import ProducerEpoch, ProducerId

# Key and value; a value of None is a tombstone.
CoordinatorRecord: TypeAlias = tuple[bytes, bytes | None]

TickResult_co = TypeVar("TickResult_co", covariant=True)


class ProducerIdentity(NamedTuple):
    """The transactional producer that a record or a marker belongs to."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class CoordinatorShard(Protocol[TickResult_co]):
    """The state machine of one partition of an internal topic. Deterministic: time is an argument."""

    def __len__(self) -> int:
        """The number of groups or transactional ids."""

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdentity | None = None) -> None:
        """Apply an appended record; `producer` is set for a record that is part of a transaction.

        Record types of newer versions are ignored. Raises a LogbrookError for a corrupt record, before any change.
        """

    def replay_marker(self, producer: ProducerIdentity, *, is_commit: bool) -> None:
        """Apply an appended transaction marker."""

    def finish_loading(self, now_ms: int) -> None:
        """Open the shard for requests: the whole log is replayed."""

    def begin_grace(self, until_ms: int) -> None:
        """Let no client time out before `until_ms`: its requests were refused for a while."""

    def next_deadline_ms(self) -> int | None:
        """Return the earliest time at which `tick` may have work; None for never."""

    def tick(self, now_ms: int) -> TickResult_co:
        """Process the timers that are due."""

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls. For tests."""


class CoordinatorError(LogbrookError):
    """A coordinator refused a request. Base of GroupError and TransactionError."""


class CoordinatorLoadingError(CoordinatorError):
    """The shard is being loaded, or could not be. Retriable: never answer "no offset" in this state."""

    def __init__(self, key: str = "") -> None:
        of_key = f" of {key!r}" if key else ""
        super().__init__(f"the coordinator{of_key} is loading; try again")


class CoordinatorNotAvailableError(CoordinatorError):
    """A record that the reply depends on could not be written, or the broker is stopping. Retriable."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the state of {key!r} could not be written; try again")


class NotCoordinatorError(CoordinatorError):
    """The shard is unloaded: another broker coordinates the key. The client looks the coordinator up again."""

    def __init__(self, key: str = "") -> None:
        super().__init__(f"this broker does not coordinate {key!r}; look up its coordinator again")


class CorruptCoordinatorRecordError(LogbrookError):
    """A record of `__consumer_offsets` or `__transaction_state` that cannot be decoded."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject} {reason}")
