"""A workload with every operation on a directory whose `FaultyFiles` may fail any call, and the rules that must hold.

Two lives, one after the other: appends, commits, rolls, checkpoints, compaction, retention, truncation, deletion, a
close, recovery from it, and appends again. Every operation either succeeds or raises a StorageError, whatever the disk
does; only opening a directory may also raise the OSError as it is. The script goes on after an error, as a broker does.

The rules that are checked on the way:

- Once a sync has failed nothing is acknowledged any more. Once a write has failed nothing new is: what was submitted
  before it may yet be made durable by the write-ahead log.
- Every refusal after the first failure is that failure.
- A life begins with everything that was promised before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from logbrook.config import Durability
from logbrook.storage.errors import StorageError, StorageOfflineError
from logbrook.testing import FaultyFiles, MemoryFiles
from logbrook.testing.crash import Promises
from logbrook.testing.crash import client_operations as client
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.life import Operation
from logbrook.testing.crash.promises import Acked
from logbrook.testing.forwarding import SYNC_CALLS
from tests.crash.kit import WRITES, Session

_FIRST_LIFE: tuple[Operation, ...] = (
    *(owner.create,) * 3,
    *WRITES * 5,
    owner.checkpoint,
    owner.wait,
    *WRITES,
    owner.roll,
    owner.roll,
    *WRITES,
    owner.checkpoint,
    owner.wait,
    owner.compact,
    client.read,
    owner.delete_before,
    owner.retain,
    owner.retain,
    *WRITES,
    owner.truncate,
    client.append_transactional,
    *WRITES,
    owner.truncate,
    owner.verify,
    owner.expire_producers,
    owner.delete,
    *WRITES,
    owner.create,
    owner.remove_files,
    *WRITES,
    client.read,
    owner.checkpoint,
    client.append,
    client.append,
)
_SECOND_LIFE: tuple[Operation, ...] = (client.read, *WRITES, owner.retain, owner.compact, owner.truncate, *WRITES)
_SECOND_LIFE_MS = 1_400_000


@dataclass
class Outcome:
    """The outcome of a run: its promises, and every rule that it violated."""

    promises: Promises = field(default_factory=Promises)
    broken: list[str] = field(default_factory=list)
    refusals: list[StorageError] = field(default_factory=list)
    acked: int = 0


def run_script(
    faulty: FaultyFiles, disk: MemoryFiles, durability: Durability = Durability.FSYNC, seed: int = 3
) -> Outcome:
    outcome = Outcome()
    for number, operations in enumerate((_FIRST_LIFE, _SECOND_LIFE)):
        now_ms = _SECOND_LIFE_MS if number else 1_000_000
        try:
            session = Session(
                faulty, disk, seed + number, promises=outcome.promises, durability=durability, now_ms=now_ms
            )
        except (OSError, StorageError):
            return outcome
        except AssertionError as error:
            outcome.broken.append(f"a life begins with {error!r}")
            return outcome
        _live(session, faulty, operations, outcome)
        session.directory.abandon()
    return outcome


def _live(session: Session, faulty: FaultyFiles, operations: Sequence[Operation], outcome: Outcome) -> None:
    for operation in operations:
        _attempt(session, faulty, operation.__name__, partial(session.life.do, operation), outcome)
    _attempt(session, faulty, "close", session.life.close, outcome)


def _attempt(session: Session, faulty: FaultyFiles, name: str, action: Callable[[], None], outcome: Outcome) -> None:
    health = session.directory.environment.health
    sync_failed = any(call.op in SYNC_CALLS for call in faulty.refused) and health.failure is not None
    marks = len(session.marks)
    try:
        action()
    except StorageOfflineError as error:
        outcome.refusals.append(error)
        if health.failure is None or error is not health.failure:
            outcome.broken.append(f"{name} raised {error!r}, but the first failure is {health.failure!r}")
    except StorageError as error:
        outcome.refusals.append(error)
    except OSError as error:
        outcome.broken.append(f"{name} raised {error!r}")
    acked = sum(isinstance(mark, Acked) for mark in session.marks[marks:])
    outcome.acked += acked
    if sync_failed and acked:
        outcome.broken.append(f"{name} acknowledged {acked} appends after {health.failure!r}")
