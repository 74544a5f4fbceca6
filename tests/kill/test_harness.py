"""The harness itself: it leaves nothing behind, says what is wrong, and does the same for the same seed."""

import contextlib
import signal
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
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.kill.damage import cut_tails
from logbrook.testing.kill.errors import BrokerFailedError
from logbrook.testing.kill.free_port import free_port
from logbrook.testing.kill.guardian import Guardian
from logbrook.testing.kill.moments import Moment, moments, schedule
from logbrook.testing.kill.payloads import payload, value_of
from logbrook.testing.kill.plan import Outcome, Plan, summary
from logbrook.testing.kill.scene import Scene
from logbrook.testing.kill.waiting import wait_until

# A process that stays until it is killed, says when it is there, and has a child that does the same.
STAYING = "import os, signal; os.fork(); print('there', flush=True); signal.pause()"
HARNESS = """
import subprocess, sys, signal
from logbrook.testing.kill.guardian import Guardian
guardian = Guardian()
guardian.watch_directory(sys.argv[2])
started = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
started.stdout.readline()
guardian.watch_group(started.pid)
print(started.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    with Guardian() as made:
        yield made


def group_is_gone(pid: int) -> bool:
    """Zombies count as gone: nobody may be there to reap them."""
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        assert not group_is_gone(pid)
        harness.send_signal(signal.SIGKILL)
    assert wait_until(lambda: group_is_gone(pid), 10)
    assert wait_until(lambda: not scratch.exists(), 10)


def test_a_guardian_spares_what_it_was_told_to_forget(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STAYING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as staying:
        assert staying.stdout is not None
        staying.stdout.readline()
        with Guardian() as guardian:
            guardian.watch_group(staying.pid)
            guardian.forget_group(staying.pid)
        assert staying.poll() is None
        with Guardian() as guardian:
            guardian.watch_group(staying.pid)
    assert staying.returncode == -signal.SIGKILL


def test_a_guardian_that_was_killed_is_no_obstacle_to_cleaning_up() -> None:
    guardian = Guardian()
    guardian.watch_group(2**22 + 1)
    guardian._process.kill()
    guardian._process.wait()
    guardian.forget_group(2**22 + 1)
    guardian.close()


def test_a_broker_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path, guardian: Guardian) -> None:
    log = tmp_path / "log"
    broker = BrokerProcess(str(tmp_path / "data"), free_port(), str(log), ["--durability=nonsense"], guardian)
    broker.start()
    with pytest.raises(BrokerFailedError, match=r"(?s)ended while it was starting \(code 2\).*nonsense"):
        broker.wait_until_it_answers(30)
    with pytest.raises(BrokerFailedError, match="ended by itself"):
        broker.kill()
    broker.end()
    assert not broker.is_running


def test_a_port_is_one_that_outgoing_connections_never_get() -> None:
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < first_outgoing for _ in range(20))


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 25, 1000])
def test_a_payload_tells_its_value(length: int) -> None:
    data = payload("p-0.1:17", length)
    assert value_of(data) == "p-0.1:17"
    assert len(data) == max(length, 9)


def test_a_payload_that_was_cut_or_mixed_up_is_no_value() -> None:
    first, second = payload("p-0.1:17", 100), payload("p-0.1:18", 100)
    assert value_of(first[:50]) == "p-0.1:17", "a cut is a payload of another length; the checksum is for that"
    for data in (first[:50] + second[50:], first[:3], b"", None, b"\xff|"):
        assert value_of(data) not in ("p-0.1:17", "p-0.1:18", "p-0", "")


@pytest.mark.parametrize("kills", [1, 2, 5, 30])
def test_a_schedule_follows_from_its_seed_and_begins_with_something_to_lose(kills: int) -> None:
    found = schedule(Random(7), moments(Random(8), kills))
    assert found == schedule(Random(7), moments(Random(8), kills))
    assert len(found) == kills
    assert found[0].moment is Moment.LOADED
    assert found[0].acknowledged > 0


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


def test_only_the_time_in_which_the_broker_is_up_counts_for_a_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine kills in a row keep the broker away for longer than any answer may take."""
    monkeypatch.setattr(clients, "FLUSH_TIMEOUT_S", 0.3)
    scene = Scene(f"127.0.0.1:{free_port()}", seed=0, partitions=1)
    sender = clients.producer(scene.address)
    sender.produce("events", b"value")
    waiting = Thread(target=clients.last_answers, args=(scene, "producer", sender))
    waiting.start()
    waiting.join(1.5)
    assert waiting.is_alive()
    assert scene.problems == []
    scene.is_up = True
    waiting.join(10)
    assert not waiting.is_alive()
    assert scene.problems == ["producer had 1 writes without an answer with the broker up for 0.3 s"]


def outcome(seed: int, kills: int, *problems: str) -> Outcome:
    return Outcome(Plan(kills, seed), check([]), list(problems), Counter({Moment.LOADED: kills}), [0.5], 10.0)


def test_a_summary_tells_how_many_kills_there_were_and_what_that_proves() -> None:
    told = summary([outcome(0, 25), outcome(1, 5)])
    assert "30 kills in 2 runs and 20 s: 30 loaded" in told
    assert told.endswith("no failure in 30 kills: fewer than 1.0e-01 of such kills fail (95 %)")


def test_a_summary_of_failures_proves_nothing_and_tells_the_seeds() -> None:
    told = summary([outcome(0, 25), outcome(1, 5, "it broke")])
    assert told.endswith("FAILED: 1 of 2 runs, with the seeds 1")
    assert str(outcome(1, 5, "it broke")).endswith("PROBLEM: it broke")


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_the_test_kit_is_imported_without_a_client_library() -> None:
    done = run("import sys, logbrook.testing.kill, logbrook.testing.history; print('confluent_kafka' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


def test_without_a_client_library_the_command_says_what_to_install() -> None:
    script = "import sys; sys.modules['confluent_kafka'] = None; from logbrook.testing.kill.__main__ import main\n"
    done = run(f"{script}sys.argv = ['kill', '--kills', '1']; sys.exit(main())")
    assert (done.returncode, done.stderr) == (
        2,
        "the kill test needs confluent-kafka: pip install 'logbrook[dev]'\n",
    )
