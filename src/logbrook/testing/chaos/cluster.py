"""The cluster of a chaos test: three etcds and three brokers as processes, and the network between them."""

import os
import shutil
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from logbrook.testing.chaos.etcd_admin import EtcdAdmin
from logbrook.testing.chaos.network import ChaosNetwork
from logbrook.testing.chaos.plan import LAG_S_MAX, LEASE_S, NODES, ChaosPlan, rack_of
from logbrook.testing.etcd import EtcdCluster
from logbrook.testing.kill.broker_process import BrokerFailedError, BrokerProcess
from logbrook.testing.kill.plan import FLAGS, SMALL_FILES
from logbrook.testing.processes import free_port
from logbrook.testing.reaper import Reaper

CLUSTER_NAME = "chaos"
MIN_INSYNC = 2
_SMALL_DISK = "192m"
_FILLER = "filler"
_FILLER_BYTES = 1 << 20
_STOP_TIMEOUT_S = 60.0
_FLAGS = (
    *FLAGS,
    *SMALL_FILES,
    f"--cluster-lease-ms={LEASE_S:g}s",
    f"--cluster-replica-lag-ms-max={LAG_S_MAX:g}s",
    # For the internal topics, too.
    f"--log-min-insync-replicas={MIN_INSYNC}",
    "--groups-offsets-partitions=3",
    "--transactions-partitions=3",
)


class ChaosCluster:
    """`with ChaosCluster(plan, etcd_command, directory, reaper) as cluster:`. Nothing outlives the reaper."""

    def __init__(self, plan: ChaosPlan, etcd_command: str, directory: Path, reaper: Reaper) -> None:
        self._plan = plan
        self._reaper = reaper
        self._stack = ExitStack()
        self.directory = directory
        self.etcd = EtcdCluster(etcd_command, directory=directory / "etcd", reaper=reaper)
        self.etcd_admin = EtcdAdmin(self.etcd.addresses)
        self.network = ChaosNetwork()
        self.brokers: dict[int, BrokerProcess] = {}
        self.addresses: dict[int, str] = {}
        """The addresses that the brokers advertise: those of the proxy."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses.values())

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self.etcd)
            self._stack.enter_context(self.network)
            for number in NODES:
                self._add(number)
            for number in NODES:
                self.start(number)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end_brokers()
        self._stack.close()

    def end_brokers(self) -> None:
        """Kill the brokers that run."""
        for broker in self.brokers.values():
            broker.end()

    def _add(self, number: int) -> None:
        port = free_port()
        name = broker_node(number)
        proxied = [
            self.network.listen(etcd_node(member), int(address.rpartition(":")[2]), source=name)
            for member, address in enumerate(self.etcd.addresses)
        ]
        self.addresses[number] = f"127.0.0.1:{self.network.listen(name, port)}"
        store = ",".join(f"127.0.0.1:{proxy}" for proxy in proxied)
        flags = [
            *_FLAGS,
            f"--node={number}",
            f"--rack={rack_of(number)}",
            f"--cluster={store}/{CLUSTER_NAME}",
            f"--advertise={self.addresses[number]}",
        ]
        if number == self._plan.small_disk_broker and self._plan.has_small_disk:
            self._mount_small_disk()
        log_path = str(self.directory / f"broker-{number}.log")
        self.brokers[number] = BrokerProcess(str(self.data(number)), port, log_path, flags, self._reaper)

    def data(self, number: int) -> Path:
        is_small = number == self._plan.small_disk_broker and self._plan.has_small_disk
        return self._small_disk / "data" if is_small else self.directory / f"data-{number}"

    # Processes of brokers

    def start(self, number: int) -> None:
        self.brokers[number].start()

    def kill(self, number: int) -> None:
        """Raises BrokerFailedError if it had exited by itself."""
        self.brokers[number].kill()
        self.network.refuse(broker_node(number))

    def stop(self, number: int) -> None:
        """Stop it with SIGTERM. Raises BrokerFailedError if it does not exit in time, or not with 0."""
        self.brokers[number].stop(_STOP_TIMEOUT_S)
        self.network.refuse(broker_node(number))

    def stop_all(self) -> None:
        """Stop all brokers at the same time. Raises BrokerFailedError."""
        for broker in self.brokers.values():
            broker.begin_stop()
        for broker in self.brokers.values():
            broker.finish_stop(_STOP_TIMEOUT_S)

    def replace_disk(self, number: int) -> None:
        """Remove all data of a broker that does not run."""
        shutil.rmtree(self.data(number))

    def check_running(self) -> None:
        """Raises BrokerFailedError."""
        for number, broker in self.brokers.items():
            if not broker.is_running:
                problem = f"broker {number} is not running (exit code {broker.exit_code})"
                raise BrokerFailedError(problem, broker.log_tail())

    # The small disk

    @property
    def _small_disk(self) -> Path:
        return self.directory / "small-disk"

    def _mount_small_disk(self) -> None:
        self._small_disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", str(self._small_disk)]
        subprocess.run(command, check=True, capture_output=True)
        self._reaper.watch_mount(str(self._small_disk))
        self._stack.callback(unmount, self._small_disk)

    def fill_disk(self) -> None:
        """Fill the small disk to the last byte."""
        with suppress(OSError), (self._small_disk / _FILLER).open("ab", buffering=0) as file:
            step = _FILLER_BYTES
            while step:
                try:
                    while file.write(bytes(step)) == step:
                        pass
                except OSError:
                    pass
                step //= 2

    def free_disk(self) -> None:
        (self._small_disk / _FILLER).unlink(missing_ok=True)


def broker_node(number: int) -> str:
    """Return the name of a broker in the network, which is its client id in connections to other brokers."""
    return f"broker-{number}"


def etcd_node(member: int) -> str:
    return f"etcd-{member}"


def unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)


def why_no_small_disk(directory: Path) -> str:
    """Return why no small disk can be mounted, empty if it can."""
    if os.geteuid() != 0:
        return "only root can mount one"
    target = directory / "mount-attempt"
    target.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(target)]
        attempt = subprocess.run(command, capture_output=True, text=True, check=False)
        if attempt.returncode:
            return attempt.stderr.strip() or "mount failed"
        unmount(target)
    except FileNotFoundError:
        return "there is no mount command"
    finally:
        with suppress(OSError):
            target.rmdir()
    return ""
