"""A run of the chaos test: one cluster, one load, many faults, one history."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic

from logbrook.testing.chaos.cluster import ChaosCluster
from logbrook.testing.chaos.faults import FaultInjector
from logbrook.testing.chaos.health import NotHealthyError, ReplicaHealth
from logbrook.testing.chaos.java_client import JavaClient
from logbrook.testing.chaos.load import PACE, chaos_load
from logbrook.testing.chaos.outcome import ChaosOutcome, StepResult, longest_gap_s
from logbrook.testing.chaos.plan import NODES, ChaosFault, ChaosPlan, FaultKind, FaultStep
from logbrook.testing.chaos.progress import ClientProgress
from logbrook.testing.chaos.replicas import differences
from logbrook.testing.chaos.spark_copy import SparkCopy
from logbrook.testing.history import check, save
from logbrook.testing.kill.broker_process import BrokerFailedError
from logbrook.testing.kill.clients import KafkaException
from logbrook.testing.kill.final_read import read_everything
from logbrook.testing.kill.load_client import LoadClient, LoadState
from logbrook.testing.processes import pause, working_directory
from logbrook.testing.reaper import Reaper

_START_TIMEOUT_S = 60.0
_FINAL_READ_TIMEOUT_S = 120.0
_BETWEEN_S = 0.5


@dataclass
class ChaosCampaign:
    """Runs a plan. `on_begin` is called before every step, `on_step` after it."""

    plan: ChaosPlan
    etcd_command: str
    on_step: Callable[[StepResult], None] = lambda _: None
    on_begin: Callable[[FaultStep], None] = lambda _: None
    keeps_all: bool = False
    """Keep the directory of every run, not only of one that failed."""

    def run(self) -> ChaosOutcome:
        begun = monotonic()
        with (
            working_directory("chaos") as (directory, reaper),
            ChaosCluster(self.plan, self.etcd_command, Path(directory), reaper) as cluster,
        ):
            run = _ChaosRun(self, cluster, reaper)
            try:
                run.start()
                run.break_things()
                run.finish()
            except (BrokerFailedError, NotHealthyError) as error:
                run.state.problems.append(str(error))
            except (KafkaException, TimeoutError) as error:
                run.state.problems.append(f"the cluster did not respond: {error!r}\n{run.health.diagnosis()}")
            finally:
                run.abandon()
            cluster.end_brokers()
            events, seconds = run.state.recorder.events(), monotonic() - begun
            outcome = ChaosOutcome(self.plan, run.results, check(events), events, run.state.problems, seconds)
            if self.keeps_all or not outcome.is_good:
                _keep(directory, outcome)
        return outcome


class _ChaosRun:
    """The cluster and the clients of a run."""

    def __init__(self, campaign: ChaosCampaign, cluster: ChaosCluster, reaper: Reaper) -> None:
        plan = campaign.plan
        self._campaign = campaign
        self._plan = plan
        self._cluster = cluster
        self.state = LoadState(cluster.bootstrap_servers, plan.seed, plan.partitions, pace=PACE)
        self.health = ReplicaHealth(cluster)
        self.results: list[StepResult] = []
        others: list[LoadClient] = []
        if plan.java_classpath:
            log_path = str(cluster.directory / "java.log")
            others.append(JavaClient(self.state, "java-idempotent", plan.java_classpath, log_path, reaper))
        self._load = chaos_load(self.state, others)
        self._progress = ClientProgress(self.state, self._load)
        self._spark = SparkCopy(self.state, cluster.directory, reaper) if plan.has_spark else None
        self._injector = FaultInjector(cluster, self.health, plan.partitions, plan.seed)

    def start(self) -> None:
        """Start all clients, and wait until each has succeeded. Raises as `break_things` does."""
        for broker in self._cluster.brokers.values():
            broker.wait_until_ready(_START_TIMEOUT_S)
        self.health.wait()
        self._load.start()
        if self._spark is not None:
            self._spark.start(len(NODES))
        self._progress.wait()
        self.health.wait()

    def break_things(self) -> None:
        """Raises BrokerFailedError, NotHealthyError, KafkaException or TimeoutError."""
        for step in self._plan.steps():
            self._campaign.on_begin(step)
            result = self._run_step(step)
            self.results.append(result)
            self._campaign.on_step(result)
            if self._spark is not None:
                self._spark.check_running()
            if self.state.problems:
                # A client has failed: what follows would say little.
                return
            pause(_BETWEEN_S * self._plan.scale)

    def _run_step(self, step: FaultStep) -> StepResult:
        state = self.state
        events, begun_ns = state.recorder.count, state.recorder.now_ns()
        state.is_up = False
        self._inject(step)
        ended = monotonic()
        self.health.wait()
        healthy_s = monotonic() - ended
        state.is_up = True
        self._progress.wait()
        ended_ns = state.recorder.now_ns()
        gap_s = longest_gap_s(state.recorder.since(events), state.partitions, begun_ns, ended_ns)
        return StepResult(step, gap_s, healthy_s)

    def _inject(self, step: FaultStep) -> None:
        active: list[tuple[float, ChaosFault]] = []
        for number, fault in enumerate(step.faults):
            if number:
                pause(step.lag_s)
            self._injector.begin(fault)
            active.append((monotonic() + fault.seconds, fault))
        # Partitions are moved back last: a broker that another fault has taken away cannot get replicas.
        for until, fault in sorted(active, key=lambda end: (end[1].kind is FaultKind.MOVE_PARTITIONS, end[0])):
            pause(max(0.0, until - monotonic()))
            self._injector.end(fault)

    def finish(self) -> None:
        """Drain the load, read everything, stop the brokers, and compare their logs. Raises as `break_things` does."""
        self._load.drain()
        if self._spark is not None:
            self._spark.finish()
        self.health.wait()
        read_everything(self.state, self.state.partitions, _FINAL_READ_TIMEOUT_S)
        self._cluster.stop_all()
        directories = {number: self._cluster.data(number) for number in self._cluster.brokers}
        self.state.problems += differences(directories, self.state.partitions)

    def abandon(self) -> None:
        """Stop all clients, whatever they do."""
        self._load.abandon()
        if self._spark is not None:
            self._spark.end()


def _keep(directory: str, outcome: ChaosOutcome) -> None:
    outcome.kept = mkdtemp(prefix=f"logbrook-chaos-seed-{outcome.plan.seed}-")
    shutil.copytree(directory, outcome.kept, dirs_exist_ok=True)
    with open(os.path.join(outcome.kept, "history.jsonl"), "w") as file:
        save(outcome.events, file)
    with open(os.path.join(outcome.kept, "outcome.txt"), "w") as file:
        file.write(f"{outcome}\n")
