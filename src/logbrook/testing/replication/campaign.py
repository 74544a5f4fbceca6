"""Random schedules of the replication model, by seed.

A seed decides every step: who produces, syncs, fetches, dies, loses its disk or its lease, which message arrives and
what the metadata store answers. After the last step all faults end, and the model judges what clients were told. A seed
that fails prints its schedule; it is the same in every run.
"""

from collections.abc import Callable, Sequence
from random import Random

from logbrook.core.cluster.partition import NO_LEADER
from logbrook.testing.replication.model import ReplicationModel
from logbrook.testing.replication.state import FetchMessage, ModelFaults

STEPS = 250
# Checking the invariants takes as long as ten steps.
_VALIDATE_EVERY = 10
_PROPOSAL_OUTCOMES = ("ok", "ok", "ok", "lost", "unknown")
# Of the schedules with each kind of fault in which messages arrive late, and of those in which records are deleted.
_SHARE_OF_DELAYS = 0.5
_SHARE_OF_DELETIONS = 0.25
_SHARE_OF_BATCHES = 0.4
# Of those in which logs are damaged.
_SHARE_OF_REPAIRS = 0.25
# Of those in which a broker comes back before its leader hears of it.
_SHARE_OF_LIVES = 0.25


class CampaignFailureError(Exception):
    """A schedule that breaks a promise."""

    def __init__(self, seed: int, schedule: list[str], reason: str) -> None:
        super().__init__(f"seed {seed}, after {len(schedule)} steps: {reason}")
        self.seed = seed
        self.schedule = schedule
        self.reason = reason


class ModelSchedule:
    """One seed: chooses steps and keeps those that had an effect."""

    def __init__(self, seed: int, faults: ModelFaults | None = None) -> None:
        self._seed = seed
        self._random = Random(seed)
        brokers = self._random.choice((3, 3, 4))
        factor = self._random.choice((2, 3, 3)) if brokers == 3 else 3
        min_insync = self._random.choice((1, 2, 2))
        self.steps: list[str] = []
        self.model = ReplicationModel(brokers, factor, min_insync, faults)
        self._broker_count = brokers
        # How hostile this schedule is, so that some make much progress between faults and others little.
        self._fault_rate = self._random.choice((0.03, 0.1, 0.25))
        self._works: list[Callable[[int], object]] = [
            *[self._produce] * 3,
            *[self.model.sync] * 3,
            *[self.model.fetch] * 3,
            *[self._receive] * 4,
            *[self._replicate] * 4,
            *[self.model.deliver] * 2,
            *[self._deliver_all] * 2,
            *[self.model.elect] * 2,
            *[self.model.start] * 2,
            self.model.read,
            self.model.list_offset,
            self._tick,
            self.model.register_again,
            self.model.finish_reassignment,
            self.model.checkpoint,
        ]
        # A schedule has some kinds of faults and not others: in a mix of all, each would hide what another one causes.
        kinds: list[Callable[[int], object]] = [
            self._stop,
            self._lose_power,
            self._restart,
            self._lose_leader,
            self._expire_lease,
            self._lose_message,
            self._hand_over,
            self._black_out,
            self._lose_all_others,
            self._reassign,
            self._pass_time,
            self._replace_disk,
            self._sync_partly,
            self._change_min_insync,
        ]
        self._faults = [kind for kind in kinds if self._random.random() < 0.5] or kinds
        # Chosen apart from the others: schedules without them are what they were before these were added.
        choices = Random(f"{seed}/delays")
        self._faults += [
            kind for kind in (self._return_leadership, self._return_without_disk) if choices.random() < _SHARE_OF_DELAYS
        ]

        if Random(f"{seed}/lives").random() < _SHARE_OF_LIVES:
            self._faults.append(self._return_unnoticed)
        if Random(f"{seed}/repairs").random() < _SHARE_OF_REPAIRS:
            self._faults += [self.model.damage, self._repair_and_lose_others]
            self._works.append(self.model.repair)
        if Random(f"{seed}/deletions").random() < _SHARE_OF_DELETIONS:
            self._works += [self._delete_records] * 3
        # Batches of several records, None in schedules without them.
        batches = Random(f"{seed}/batches")
        self._batches = batches if batches.random() < _SHARE_OF_BATCHES else None

    def run(self, steps: int = STEPS) -> None:
        """Raises CampaignFailureError."""
        try:
            for number in range(steps):
                self._step()
                if number % _VALIDATE_EVERY == 0:
                    self.model.validate()
            self.model.heal()
            self.model.validate()
            self.model.judge()
        except AssertionError as error:
            raise CampaignFailureError(self._seed, self.steps, str(error) or repr(error)) from error

    def _step(self) -> None:
        is_fault = self._random.random() < self._fault_rate
        action = self._random.choice(self._faults if is_fault else self._works)
        broker_id = self._random.randint(1, self._broker_count)
        self.steps.append(f"{action.__name__.strip('_')} {broker_id}")
        if not action(broker_id):
            self.steps.pop()

    def _produce(self, broker_id: int) -> bool:
        """Most clients know the leader; some have old metadata."""
        leader = self.model.registration.leader
        count = self._batches.randint(1, 4) if self._batches is not None else 1
        return self.model.produce(leader if leader > 0 and self._random.random() < 0.8 else broker_id, count)

    def _delete_records(self, broker_id: int) -> bool:
        """In schedules with batches, also within one."""
        if self._batches is None:
            return self.model.delete_records(broker_id)
        return self.model.delete_records(broker_id, self._batches.randint(0, self.model.log_end(broker_id)))

    def _replicate(self, broker_id: int) -> bool:
        self.model.replicate(broker_id)
        return True

    def _deliver_all(self, _broker_id: int) -> bool:
        self.model.deliver_all()
        return True

    def _restart(self, broker_id: int) -> bool:
        """A quick restart, after a kill or a power loss."""
        keep = self._random.choice((None, 0, self.model.log_end(broker_id)))
        if not self.model.stop(broker_id, keep):
            return False
        self.model.expire_lease(broker_id)
        return self.model.start(broker_id)

    def _lose_leader(self, broker_id: int) -> bool:
        """The leader dies, and another broker tries to take over at once."""
        leader = self.model.registration.leader
        if leader < 0 or not self.model.stop(leader, self._random.choice((None, 0))):
            return False
        self.model.expire_lease(leader)
        self.model.deliver_all()
        self.model.elect(broker_id)
        return True

    def _return_leadership(self, broker_id: int) -> bool:
        """Another broker leads for a short time. Fetches that the leader had not received arrive in its next term."""
        model, leader_id = self.model, self.model.registration.leader
        if leader_id < 0 or not model.hand_over(leader_id, broker_id):
            return False
        # The brokers have not heard of the new term yet.
        others = [other_id for other_id in model.brokers if other_id != leader_id]
        for other_id in others:
            model.sync(other_id)
            model.fetch(other_id)
        delayed = self._take_fetches(lambda fetch: fetch.leader == leader_id)
        model.deliver_all()
        for _ in range(self._random.randrange(6)):
            work = self._random.choice((model.produce, model.sync, self._replicate))
            work(broker_id if work == model.produce else self._random.choice(others))
        if self._random.random() < 0.5 or not model.hand_over(broker_id, leader_id):
            model.stop(broker_id)
            model.expire_lease(broker_id)
            model.deliver_all()
            model.elect(leader_id)
        model.deliver_all()
        if self._arrive_now_or_later(delayed):
            model.read(leader_id)
            if self._random.random() < 0.5:
                self._lose_leader(broker_id)
        return True

    def _return_without_disk(self, broker_id: int) -> bool:
        """A follower comes back with an empty disk. Fetches of its earlier life arrive, and it may be the last one."""
        model = self.model
        if model.registration.leader in (NO_LEADER, broker_id):
            return False
        model.sync(broker_id)
        if not model.fetch(broker_id):
            return False
        delayed = self._take_fetches(lambda fetch: fetch.sender == broker_id)
        model.stop(broker_id)
        model.expire_lease(broker_id)
        model.replace_disk(broker_id)
        model.start(broker_id)
        model.deliver_all()
        if self._arrive_now_or_later(delayed) and self._random.random() < 0.5:
            self._lose_all_others(broker_id)
        return True

    def _return_unnoticed(self, broker_id: int) -> bool:
        """A follower comes back with an empty disk, and its leader does not hear of it yet, or proposes it again."""
        model, leader_id = self.model, self.model.registration.leader
        if leader_id in (NO_LEADER, broker_id):
            return False
        if self._random.random() < 0.5:
            self._fall_behind(broker_id)
        model.replicate(broker_id)
        model.sync(broker_id)
        if not model.fetch(broker_id):
            return False
        delayed = self._take_fetches(lambda fetch: fetch.sender == broker_id)
        is_proposed = self._random.random() < 0.5
        if is_proposed:
            model.messages += delayed
            model.receive(len(model.messages) - 1, outcome="lost")
        model.stop(broker_id)
        model.expire_lease(broker_id)
        model.replace_disk(broker_id)
        model.start(broker_id)
        if is_proposed:
            model.now_ms += 100
            model.tick(leader_id)
        else:
            self._arrive_now_or_later(delayed)
        if self._random.random() < 0.5:
            self._lose_all_others(broker_id)
        return True

    def _repair_and_lose_others(self, broker_id: int) -> bool:
        """A follower's log is damaged and emptied. Fetches from before arrive, and it may be the last one."""
        model = self.model
        if model.registration.leader in (NO_LEADER, broker_id):
            return False
        if self._random.random() < 0.5:
            self._fall_behind(broker_id)
        model.replicate(broker_id)
        model.sync(broker_id)
        if not model.fetch(broker_id):
            return False
        delayed = self._take_fetches(lambda fetch: fetch.sender == broker_id)
        model.damage(broker_id)
        for _ in range(2):
            model.repair(broker_id)
            model.deliver_all()
        if self._arrive_now_or_later(delayed) and self._random.random() < 0.5:
            self._lose_all_others(broker_id)
        return True

    def _fall_behind(self, broker_id: int) -> None:
        """All replicas but one catch up, so that it leaves the ISR."""
        self.model.now_ms += 1_100
        for other_id in self.model.brokers:
            if other_id != broker_id:
                self._replicate(other_id)
        for other_id in self.model.brokers:
            self.model.tick(other_id)
        self.model.deliver_all()

    def _take_fetches(self, is_taken: Callable[[FetchMessage], bool]) -> list[FetchMessage]:
        """Remove fetches from the messages under way."""
        messages = self.model.messages
        taken = [message for message in messages if isinstance(message, FetchMessage) and is_taken(message)]
        messages[:] = [message for message in messages if message not in taken]
        return taken

    def _arrive_now_or_later(self, delayed: Sequence[FetchMessage]) -> bool:
        """Deliver fetches, or put them back. Returns True if they are delivered."""
        messages = self.model.messages
        first = len(messages)
        messages += delayed
        if self._random.random() < 0.5:
            return False
        for _ in delayed:
            self.model.receive(first)
        return True

    def _black_out(self, broker_id: int) -> bool:
        """All brokers lose power at the same time and come back."""
        for other_id in self.model.brokers:
            self.model.stop(other_id, keep=0)
            self.model.expire_lease(other_id)
        for other_id in self.model.brokers:
            self.model.start(other_id)
        self.model.deliver_all()
        self.model.elect(broker_id)
        return True

    def _lose_all_others(self, broker_id: int) -> bool:
        """One broker is left, and tries to take over."""
        for other_id in self.model.brokers:
            if other_id != broker_id:
                self.model.stop(other_id)
                self.model.expire_lease(other_id)
        self.model.deliver_all()
        self.model.elect(broker_id)
        return True

    def _receive(self, _broker_id: int) -> bool:
        messages = self.model.messages
        if not messages:
            return False
        index = self._random.randrange(len(messages))
        keep = isinstance(messages[index], FetchMessage) and self._random.random() < 0.05
        records_max = self._random.choice((1, 2, 1 << 30))
        outcome = self._random.choice(_PROPOSAL_OUTCOMES)
        self.steps[-1] += f" message {index} of {len(messages)}, keep={keep}, {records_max=}, {outcome}"
        self.model.receive(index, keep=keep, records_max=records_max, outcome=outcome)
        return True

    def _tick(self, broker_id: int) -> bool:
        return self.model.tick(broker_id, outcome=self._random.choice(_PROPOSAL_OUTCOMES))

    def _stop(self, broker_id: int) -> bool:
        return self.model.stop(broker_id)

    def _lose_power(self, broker_id: int) -> bool:
        return self.model.stop(broker_id, self._random.randint(0, self.model.log_end(broker_id)))

    def _expire_lease(self, broker_id: int) -> bool:
        return self.model.expire_lease(broker_id)

    def _lose_message(self, _broker_id: int) -> bool:
        if not self.model.messages:
            return False
        self.model.messages.pop(self._random.randrange(len(self.model.messages)))
        return True

    def _hand_over(self, broker_id: int) -> bool:
        leader = self.model.registration.leader
        return leader > 0 and self.model.hand_over(leader, broker_id)

    def _reassign(self, _broker_id: int) -> bool:
        if self._broker_count == len(self.model.registration.replicas) or self._random.random() < 0.5:
            return False
        target = self._random.sample(range(1, self._broker_count + 1), len(self.model.registration.target))
        self.steps[-1] += f" to {target}"
        return self.model.reassign(target)

    def _pass_time(self, _broker_id: int) -> bool:
        self.model.now_ms += self._random.choice((50, 400, 1_100))
        return True

    def _replace_disk(self, broker_id: int) -> bool:
        return self.model.replace_disk(broker_id)

    def _sync_partly(self, broker_id: int) -> bool:
        log_end, synced = self.model.log_end(broker_id), self.model.synced_end(broker_id)
        return self.model.sync(broker_id, self._random.randint(synced, log_end))

    def _change_min_insync(self, _broker_id: int) -> bool:
        return self.model.change_min_insync(self._random.choice((1, 2)))


def run_seeds(
    first: int, count: int, faults: ModelFaults | None = None, steps: int = STEPS
) -> CampaignFailureError | None:
    """Run seeds until one fails. Returns its failure, or None."""
    for seed in range(first, first + count):
        try:
            ModelSchedule(seed, faults).run(steps)
        except CampaignFailureError as failure:
            return failure
    return None
