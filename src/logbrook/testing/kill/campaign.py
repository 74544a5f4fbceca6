"""A run: one broker, one load, many kills, one history."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import monotonic

from logbrook.testing.history import Recorder, check, save
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.kill.clients import KafkaException
from logbrook.testing.kill.errors import BrokerFailedError
from logbrook.testing.kill.final_read import read_everything
from logbrook.testing.kill.free_port import free_port
from logbrook.testing.kill.load import Load
from logbrook.testing.kill.moments import Kill, Moment, moments, schedule
from logbrook.testing.kill.plan import Outcome, Plan
from logbrook.testing.kill.scene import Scene
from logbrook.testing.kill.waiting import pause, wait_until
from logbrook.testing.kill.workplace import workplace

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_PROGRESS_TIMEOUT_S = 30.0
_ASKED_TIMEOUT_S = 1.0
_LAST_READ_TIMEOUT_S = 60.0


@dataclass
class Campaign:
    """`on_kill` is told of every kill."""

    plan: Plan
    on_kill: Callable[[Kill], None] = lambda _: None
    _moments: Counter[Moment] = field(default_factory=Counter)
    _starts_s: list[float] = field(default_factory=list)

    def run(self) -> Outcome:
        begun = monotonic()
        with workplace("kill") as (directory, guardian):
            log_path = os.path.join(directory, "broker.log")
            data = os.path.join(directory, "data")
            broker = BrokerProcess(data, free_port(), log_path, self.plan.flags, guardian)
            scene = Scene(broker.address, self.plan.seed, self.plan.partitions, self.plan.isolation)
            load = Load(scene)
            try:
                self._live_and_die(broker, scene, load)
                self._finish(broker, scene, load)
            except BrokerFailedError as error:
                scene.problems.append(str(error))
            except (KafkaException, TimeoutError) as error:
                scene.problems.append(
                    str(BrokerFailedError(f"the broker did not answer: {error!r}", broker.log_tail()))
                )
            finally:
                load.abandon()
                broker.end()
            verdict = check(scene.recorder.events())
            outcome = Outcome(self.plan, verdict, scene.problems, self._moments, self._starts_s, monotonic() - begun)
            if self.plan.keep is not None and not outcome.is_good:
                _keep(self.plan.keep, directory, scene.recorder, outcome)
        return outcome

    def _live_and_die(self, broker: BrokerProcess, scene: Scene, load: Load) -> None:
        rng = scene.rng("kills")
        sought = self.plan.moments or moments(rng, self.plan.kills)
        self._start(broker, scene)
        load.start()
        for number, kill in enumerate(schedule(rng, sought)):
            if kill.moment is Moment.STARTING:
                broker.start()
                pause(kill.start_share * median(self._starts_s))
            else:
                if number:
                    self._start(broker, scene)
                self._reach(kill, broker, scene, load)
            scene.is_up = False
            broker.kill()
            scene.recorder.broker_killed()
            self._moments[kill.moment] += 1
            self.on_kill(kill)
            if self.plan.damage is not None and number == 0:
                self.plan.damage(broker.data)
        self._start(broker, scene)

    def _start(self, broker: BrokerProcess, scene: Scene) -> None:
        broker.start()
        self._starts_s.append(broker.wait_until_it_answers(_START_TIMEOUT_S))
        scene.recorder.broker_started()
        scene.is_up = True

    def _reach(self, kill: Kill, broker: BrokerProcess, scene: Scene, load: Load) -> None:
        """Wait for the moment. That no write is acknowledged meanwhile is a problem of the broker's."""

        def acknowledged() -> int:
            return scene.idempotent_acknowledged if kill.are_idempotent else scene.acknowledged

        writes, commits = acknowledged() + kill.acknowledged, scene.committed + kill.committed
        transactions = scene.transactions + kill.transactions

        def is_reached() -> bool:
            return acknowledged() >= writes and scene.committed >= commits and scene.transactions >= transactions

        if not wait_until(lambda: is_reached() or not broker.is_running, _PROGRESS_TIMEOUT_S):
            missing = f"{writes - acknowledged()} of {kill.acknowledged} writes"
            missing += f", {commits - scene.committed} of {kill.committed} commits"
            missing += f" and {transactions - scene.transactions} of {kill.transactions} transactions"
            scene.problems.append(f"life {broker.lives}: {missing} are missing after {_PROGRESS_TIMEOUT_S:.0f} s")
        if kill.moment is Moment.CREATING:
            load.topic_maker.make(_ASKED_TIMEOUT_S)
        elif kill.moment is Moment.REBALANCING:
            load.members[broker.lives % len(load.members)].leave()
        pause(kill.delay_s)

    def _finish(self, broker: BrokerProcess, scene: Scene, load: Load) -> None:
        """The load ends, the broker stops and starts once more as it should, and everything is read."""
        load.drain()
        broker.stop(_STOP_TIMEOUT_S)
        scene.recorder.broker_stopped()
        self._start(broker, scene)
        read_everything(scene, load.partitions, _LAST_READ_TIMEOUT_S)
        broker.stop(_STOP_TIMEOUT_S)
        scene.recorder.broker_stopped()


def _keep(target: str, directory: str, recorder: Recorder, outcome: Outcome) -> None:
    place = os.path.join(target, f"seed-{outcome.plan.seed}")
    shutil.copytree(directory, place, dirs_exist_ok=True)
    with open(os.path.join(place, "history.jsonl"), "w") as file:
        save(recorder.events(), file)
    with open(os.path.join(place, "outcome.txt"), "w") as file:
        file.write(f"{outcome}\n")
