"""The harness itself: it cleans up, reports failures, and is deterministic for a seed."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from logbrook.testing.history import check
from logbrook.testing.kill import clients
from logbrook.testing.kill.broker_process import BrokerFailedError, BrokerProcess
from logbrook.testing.kill.load_client import LoadState, payload, value_of
from logbrook.testing.kill.plan import KillOutcome, KillPlan, Moment, moments, schedule, summary
from logbrook.testing.processes import free_port, wait_until
from logbrook.testing.reaper import Reaper
from tests.kill.damage import cut_tails
from tests.processes import running

# A process that runs until it is killed, reports when it is ready, and has a child that does the same.
STAYING = "import os, signal; os.fork(); print('there', flush=True); signal.pause()"
HARNESS = """
import subprocess, sys, signal
from logbrook.testing.reaper import Reaper
reaper = Reaper()
reaper.watch_directory(sys.argv[2])
started = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
started.stdout.readline()
reaper.watch_group(started.pid)
print(started.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    with Reaper() as made:
        yield made


def group_is_gone(pid: int) -> bool:
    """Return True if all processes of the group have ended. Zombies count as ended."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(group) == pid and state != "Z":
                return False
    return True


def test_a_harness_that_is_killed_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "data").mkdir(parents=True)
    (scratch / "data" / "file").write_text("content")
    command = [sys.executable, "-c", HARNESS, STAYING, str(scratch)]
    with running(command, stdout=subprocess.PIPE, start_new_session=True) as harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        assert not group_is_gone(pid)
        harness.kill()
    assert wait_until(lambda: group_is_gone(pid), 10)
    assert wait_until(lambda: not scratch.exists(), 10)


def test_the_reaper_spares_processes_that_were_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STAYING]
    with running(command, stdout=subprocess.PIPE, start_new_session=True) as staying:
        assert staying.stdout is not None
        staying.stdout.readline()
        with Reaper() as reaper:
            reaper.watch_group(staying.pid)
            reaper.forget_group(staying.pid)
        assert staying.poll() is None
        with Reaper() as reaper:
            reaper.watch_group(staying.pid)
        staying.wait(60)
    assert staying.returncode == -signal.SIGKILL


def test_clean_up_works_after_the_reaper_was_killed() -> None:
    reaper = Reaper()
    reaper.watch_group(2**22 + 1)
    reaper._process.kill()
    reaper._process.wait()
    reaper.forget_group(2**22 + 1)
    reaper.close()


def test_a_failed_start_is_reported_with_the_end_of_the_brokers_log(tmp_path: Path, reaper: Reaper) -> None:
    log = tmp_path / "log"
    broker = BrokerProcess(str(tmp_path / "data"), free_port(), str(log), ["--durability=nonsense"], reaper)
    broker.start()
    with pytest.raises(BrokerFailedError, match=r"(?s)exited while starting \(exit code 2\).*nonsense"):
        broker.wait_until_ready(30)
    with pytest.raises(BrokerFailedError, match="exited by itself"):
        broker.kill()
    broker.end()
    assert not broker.is_running


def test_a_port_is_one_that_outgoing_connections_never_get() -> None:
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < first_outgoing for _ in range(20))


def test_a_port_is_reserved_and_a_server_can_be_restarted_on_it() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            pass


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 25, 1000])
def test_a_payload_contains_its_value(length: int) -> None:
    data = payload("p-0.1:17", length)
    assert value_of(data) == "p-0.1:17"
    assert len(data) == max(length, 9)


def test_a_truncated_or_mixed_payload_is_invalid() -> None:
    first, second = payload("p-0.1:17", 100), payload("p-0.1:18", 100)
    assert value_of(first[:50]) == "p-0.1:17", "a cut is a payload of another length; the checksum is for that"
    for data in (first[:50] + second[50:], first[:3], b"", None, b"\xff|"):
        assert value_of(data) not in ("p-0.1:17", "p-0.1:18", "p-0", "")


@pytest.mark.parametrize("kills", [1, 2, 5, 30])
def test_a_schedule_follows_from_its_seed_and_begins_with_something_to_lose(kills: int) -> None:
    planned = schedule(Random(7), moments(Random(8), kills))
    assert planned == schedule(Random(7), moments(Random(8), kills))
    assert len(planned) == kills
    assert planned[0].moment is Moment.LOADED
    assert planned[0].acknowledged > 0


def test_a_schedule_has_every_kind_of_moment() -> None:
    for seed in range(20):
        assert set(moments(Random(seed), len(Moment))) == set(Moment)


def test_damage_takes_the_ends_of_logs_and_keeps_the_size_of_the_write_ahead_log(tmp_path: Path) -> None:
    for name, size in {"wal/1.wal": 8192, "events-0/0.log": 4096, "events-0/0.index": 64, "__x-0/0.log": 4096}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * (size // 2) + b"\0" * (size - size // 2))
    assert cut_tails(str(tmp_path)) == 2048 + 1024
    assert (tmp_path / "wal/1.wal").read_bytes() == b"x" * 2048 + b"\0" * 6144
    assert (tmp_path / "events-0/0.log").read_bytes() == b"x" * 1024
    assert (tmp_path / "events-0/0.index").stat().st_size == 64
    assert (tmp_path / "__x-0/0.log").stat().st_size == 4096


def test_only_uptime_of_the_broker_counts_for_a_late_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, consecutive kills keep the broker down for longer than the response timeout."""
    monkeypatch.setattr(clients, "FLUSH_TIMEOUT_S", 0.3)
    state = LoadState(f"127.0.0.1:{free_port()}", seed=0, partitions=1)
    sender = clients.producer(state.address)
    sender.produce("events", b"value")
    waiting = Thread(target=clients.flush_all, args=(state, "producer", sender))
    waiting.start()
    waiting.join(1.5)
    assert waiting.is_alive()
    assert state.problems == []
    state.is_up = True
    waiting.join(10)
    assert not waiting.is_alive()
    assert state.problems == ["producer had 1 writes without a response with the broker up for 0.3 s"]


def outcome(seed: int, kills: int, *problems: str) -> KillOutcome:
    return KillOutcome(KillPlan(kills, seed), check([]), list(problems), Counter({Moment.LOADED: kills}), [0.5], 10.0)


def test_a_summary_has_the_number_of_kills_and_the_failure_bound() -> None:
    text = summary([outcome(0, 25), outcome(1, 5)])
    assert "30 kills in 2 runs and 20 s: 30 loaded" in text
    assert text.endswith("no failure in 30 kills: fewer than 1.0e-01 of such kills fail (95 %)")


def test_a_summary_of_failures_names_the_seeds_without_a_bound() -> None:
    text = summary([outcome(0, 25), outcome(1, 5, "it broke")])
    assert text.endswith("FAILED: 1 of 2 runs, with the seeds 1")
    assert str(outcome(1, 5, "it broke")).endswith("PROBLEM: it broke")


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def test_the_test_kit_is_imported_without_a_client_library() -> None:
    done = run("import sys, logbrook.testing.kill, logbrook.testing.history; print('confluent_kafka' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


def test_without_a_client_library_the_command_names_the_package_to_install() -> None:
    script = "import sys; sys.modules['confluent_kafka'] = None; from logbrook.testing.kill.__main__ import main\n"
    done = run(f"{script}sys.argv = ['kill', '--kills', '1']; sys.exit(main())")
    assert (done.returncode, done.stderr) == (
        2,
        "the kill test needs confluent-kafka: pip install '.[dev]' in a clone of Logbrook\n",
    )
