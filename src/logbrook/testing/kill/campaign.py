"""A run of the kill test: one broker, one load, many kills, one history."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import monotonic

from logbrook.testing.history import Recorder, check, save
from logbrook.testing.history.events import BrokerKilled, BrokerStarted, BrokerStopped
from logbrook.testing.kill.broker_process import BrokerFailedError, BrokerProcess
from logbrook.testing.kill.clients import KafkaException
from logbrook.testing.kill.final_read import read_everything
from logbrook.testing.kill.load import KillLoad
from logbrook.testing.kill.load_client import LoadState
from logbrook.testing.kill.plan import Kill, KillOutcome, KillPlan, Moment, moments, schedule
from logbrook.testing.processes import free_port, pause, wait_until, working_directory

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_PROGRESS_TIMEOUT_S = 30.0
_SENDING_TIMEOUT_S = 1.0
_FINAL_READ_TIMEOUT_S = 60.0


@dataclass
class KillCampaign:
    """Runs a plan. `on_kill` is called after every kill."""

    plan: KillPlan
    on_kill: Callable[[Kill], None] = lambda _: None
    _moments: Counter[Moment] = field(default_factory=Counter)
    _starts_s: list[float] = field(default_factory=list)

    def run(self) -> KillOutcome:
        begun = monotonic()
        with working_directory("kill") as (directory, reaper):
            log_path = os.path.join(directory, "broker.log")
            data = os.path.join(directory, "data")
            broker = BrokerProcess(data, free_port(), log_path, self.plan.flags, reaper)
            state = LoadState(broker.address, self.plan.seed, self.plan.partitions, self.plan.isolation)
            load = KillLoad(state)
            try:
                self._run_and_kill(broker, state, load)
                self._finish(broker, state, load)
            except BrokerFailedError as error:
                state.problems.append(str(error))
            except (KafkaException, TimeoutError) as error:
                state.problems.append(
                    str(BrokerFailedError(f"the broker did not respond: {error!r}", broker.log_tail()))
                )
            finally:
                load.abandon()
                broker.end()
            verdict = check(state.recorder.events())
            outcome = KillOutcome(
                self.plan, verdict, state.problems, self._moments, self._starts_s, monotonic() - begun
            )
            if self.plan.keep is not None and not outcome.is_good:
                _keep(self.plan.keep, directory, state.recorder, outcome)
        return outcome

    def _run_and_kill(self, broker: BrokerProcess, state: LoadState, load: KillLoad) -> None:
        rng = state.rng("kills")
        kill_moments = self.plan.moments or moments(rng, self.plan.kills)
        self._start(broker, state)
        load.start()
        for number, kill in enumerate(schedule(rng, kill_moments)):
            if kill.moment is Moment.STARTING:
                broker.start()
                pause(kill.start_share * median(self._starts_s))
            else:
                if number:
                    self._start(broker, state)
                self._reach(kill, broker, state, load)
            state.is_up = False
            broker.kill()
            state.recorder.record(BrokerKilled)
            self._moments[kill.moment] += 1
            self.on_kill(kill)
            if self.plan.damage is not None and number == 0:
                self.plan.damage(broker.data)
        self._start(broker, state)

    def _start(self, broker: BrokerProcess, state: LoadState) -> None:
        broker.start()
        self._starts_s.append(broker.wait_until_ready(_START_TIMEOUT_S))
        state.recorder.record(BrokerStarted)
        state.is_up = True

    def _reach(self, kill: Kill, broker: BrokerProcess, state: LoadState, load: KillLoad) -> None:
        """Wait for the conditions of the kill. Lack of progress in time is a problem of the broker."""

        def acknowledged() -> int:
            return state.idempotent_acknowledged if kill.are_idempotent else state.acknowledged

        writes, commits = acknowledged() + kill.acknowledged, state.committed + kill.committed
        transactions = state.transactions + kill.transactions

        def is_reached() -> bool:
            return acknowledged() >= writes and state.committed >= commits and state.transactions >= transactions

        if not wait_until(lambda: is_reached() or not broker.is_running, _PROGRESS_TIMEOUT_S):
            missing = f"{writes - acknowledged()} of {kill.acknowledged} writes"
            missing += f", {commits - state.committed} of {kill.committed} commits"
            missing += f" and {transactions - state.transactions} of {kill.transactions} transactions"
            state.problems.append(f"life {broker.lives}: {missing} are missing after {_PROGRESS_TIMEOUT_S:.0f} s")
        if kill.moment is Moment.CREATING:
            load.topic_maker.make(_SENDING_TIMEOUT_S)
        elif kill.moment is Moment.REBALANCING:
            load.members[broker.lives % len(load.members)].leave()
        pause(kill.delay_s)

    def _finish(self, broker: BrokerProcess, state: LoadState, load: KillLoad) -> None:
        """Drain the load, restart the broker cleanly, and read everything."""
        load.drain()
        broker.stop(_STOP_TIMEOUT_S)
        state.recorder.record(BrokerStopped)
        self._start(broker, state)
        read_everything(state, load.partitions, _FINAL_READ_TIMEOUT_S)
        broker.stop(_STOP_TIMEOUT_S)
        state.recorder.record(BrokerStopped)


def _keep(target: str, directory: str, recorder: Recorder, outcome: KillOutcome) -> None:
    kept = os.path.join(target, f"seed-{outcome.plan.seed}")
    shutil.copytree(directory, kept, dirs_exist_ok=True)
    with open(os.path.join(kept, "history.jsonl"), "w") as file:
        save(recorder.events(), file)
    with open(os.path.join(kept, "outcome.txt"), "w") as file:
        file.write(f"{outcome}\n")
