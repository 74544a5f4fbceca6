"""The world of a replication scenario: the replication model, and a trace of everything that changes.

Commands; N is a broker:

    config [brokers=N] [factor=N] [min=N]   before anything else
    produce N [COUNT]                       a batch with acks=all; the values count from 1
    delete N OFFSET                         the leader deletes the records before an offset
    read N | offset N                       read everything that the broker shows; ask for the latest offset
    sync N [OFFSET]                         sync the broker's log, all of it or up to an offset
    checkpoint N                            save the broker's high watermark
    fetch N                                 the follower sends a fetch
    receive [keep] [lost|unknown]           deliver the oldest message; `keep` it for later; outcome of an ISR change
    replicate N ...                         fetch, answer, sync, without a fault
    stop N [keep=OFFSET]                    kill the broker; `keep` is the log end after a power loss
    start N | replace-disk N                start it again; give it an empty disk first
    expire N | register N                   the lease of the broker ends; it registers again
    deliver N ... | deliver all             the brokers see the changes of the store
    elect N                                 the broker takes over, if its image and the store allow it
    hand-over N M                           leader N names M
    reassign N,M,... | finish N             move the partition; leader N drops the old replicas
    tick N [lost|unknown] | advance MS      the leader looks at the time; time passes
    min N                                   change min.insync.replicas
    heal                                    end all faults; all replicas get in sync

The trace has a line for each part of the state that has changed, and "no effect" for a step that did nothing.
"""

from collections.abc import Iterator

from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.model.identifiers import BrokerId
from logbrook.testing.replication.model import ReplicationModel
from logbrook.testing.replication.state import ModelBroker


class ReplicationWorld:
    def __init__(self) -> None:
        self._model = ReplicationModel()
        self._state = dict(self._describe())

    def run(self, command: str) -> list[str]:
        """Run a command. Returns the lines of the trace."""
        verb, *words = command.split()
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if verb == "config":
            self._configure(options)
            return []
        result = getattr(self, "_do_" + verb.replace("-", "_"))(plain, options)
        self._model.validate()
        state = dict(self._describe())
        lines = [f"{name}: {text}" for name, text in state.items() if self._state.get(name) != text]
        self._state = state
        if isinstance(result, str):
            lines.insert(0, result)
        return lines if lines or result is not False else ["no effect"]

    def _configure(self, options: dict[str, str]) -> None:
        numbers = {name: int(text) for name, text in options.items()}
        self._model = ReplicationModel(numbers.get("brokers", 3), numbers.get("factor", 3), numbers.get("min", 2))
        self._state = dict(self._describe())

    # Clients

    def _do_produce(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.produce(*map(int, plain))

    def _do_delete(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.delete_records(*map(int, plain))

    def _do_read(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.read(int(plain[0]))

    def _do_offset(self, plain: list[str], _options: dict[str, str]) -> str:
        offset = self._model.list_offset(int(plain[0]))
        return "offset not available" if offset is None else f"offset {offset}"

    # Brokers

    def _do_sync(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.sync(*map(int, plain))

    def _do_checkpoint(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.checkpoint(int(plain[0]))

    def _do_stop(self, plain: list[str], options: dict[str, str]) -> bool:
        return self._model.stop(int(plain[0]), int(options["keep"]) if options else None)

    def _do_start(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.start(int(plain[0]))

    def _do_replace_disk(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.replace_disk(int(plain[0]))

    def _do_expire(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.expire_lease(int(plain[0]))

    def _do_register(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.register_again(int(plain[0]))

    # Replication

    def _do_fetch(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.fetch(int(plain[0]))

    def _do_receive(self, plain: list[str], _options: dict[str, str]) -> bool:
        if not self._model.messages:
            return False
        self._model.receive(0, keep="keep" in plain, outcome=_outcome(plain))
        return True

    def _do_replicate(self, plain: list[str], _options: dict[str, str]) -> None:
        for broker_id in plain:
            self._model.replicate(int(broker_id))

    # The store

    def _do_deliver(self, plain: list[str], _options: dict[str, str]) -> None:
        for broker_id in [*self._model.brokers] if plain == ["all"] else map(int, plain):
            while self._model.deliver(broker_id):
                pass

    def _do_elect(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.elect(int(plain[0]))

    def _do_hand_over(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.hand_over(int(plain[0]), int(plain[1]))

    def _do_step_down(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.step_down(int(plain[0]), int(plain[1]))

    def _do_reassign(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.reassign([int(broker_id) for broker_id in plain[0].split(",")])

    def _do_finish(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.finish_reassignment(int(plain[0]))

    def _do_tick(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.tick(int(plain[0]), outcome=_outcome(plain))

    def _do_advance(self, plain: list[str], _options: dict[str, str]) -> None:
        self._model.now_ms += int(plain[0])

    def _do_min(self, plain: list[str], _options: dict[str, str]) -> bool:
        return self._model.change_min_insync(int(plain[0]))

    def _do_heal(self, _plain: list[str], _options: dict[str, str]) -> None:
        self._model.heal()
        self._model.judge()

    # The trace

    def _describe(self) -> Iterator[tuple[str, str]]:
        yield "store", _describe_registration(self._model.registration)
        registered = {broker_id for broker_id in self._model.brokers if self._is_registered(broker_id)}
        yield "registered", _ids(sorted(registered))
        for broker in self._model.brokers.values():
            yield f"broker {broker.broker_id}", _describe_broker(broker)
        yield "acknowledged", " ".join(f"{offset}={value}" for offset, value in self._model.acknowledged.items()) or "-"
        yield "deletion acknowledged", str(self._model.deletion_acknowledged)

    def _is_registered(self, broker_id: BrokerId) -> bool:
        return f"brokers/{broker_id}" in self._model.store.entries


def _describe_registration(partition: PartitionRegistration) -> str:
    leader = f"leader {partition.leader}" if partition.has_leader else "no leader"
    text = f"{leader}, epoch {partition.leader_epoch}, replicas {_ids(partition.replicas)}, isr {_ids(partition.isr)}"
    for name, members in (("elr", partition.elr), ("adding", partition.adding), ("removing", partition.removing)):
        text += f", {name} {_ids(members)}" if members else ""
    return text


def _describe_broker(broker: ModelBroker) -> str:
    if not broker.is_up:
        return "down"
    role = "no role"
    if broker.leader is not None:
        role = f"leads epoch {broker.leader.leader_epoch}"
    elif broker.follower is not None:
        role = f"follows {broker.follower.leader} in epoch {broker.follower.leader_epoch}"
    log = broker.log
    records = log.values_from(log.log_start_offset)
    values = " ".join(f"{record.value}/{record.epoch}" for record in records) or "empty"
    return f"{role}, log {values}, synced {broker.log.synced_end_offset}, hw {broker.high_watermark}"


def _ids(broker_ids: object) -> str:
    assert isinstance(broker_ids, list | tuple)
    return ",".join(map(str, broker_ids)) or "-"


def _outcome(words: list[str]) -> str:
    return next((word for word in words if word in ("lost", "unknown")), "ok")
