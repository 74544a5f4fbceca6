"""The recorder keeps the order of times, and a saved history is the same when it is loaded."""

import io
import subprocess
import sys
from pathlib import Path
from threading import Thread
from time import monotonic_ns

import pytest

from logbrook.model import TopicPartition
from logbrook.testing.history import Event, Recorder, check, load, save
from logbrook.testing.history.events import BrokerStopped, FinalRead, Sent
from tests.unit.testing.history.good import good_history

P0 = TopicPartition("t", 0)


def saved(events: list[Event]) -> str:
    file = io.StringIO()
    save(events, file)
    return file.getvalue()


def test_events_of_many_threads_are_in_the_order_of_their_times() -> None:
    recorder = Recorder(monotonic_ns)

    def send(producer: str) -> None:
        for number in range(500):
            recorder.record(Sent, producer, P0, f"{producer}:{number}")

    threads = [Thread(target=send, args=(f"p{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [event.at_ns for event in recorder.events()]
    assert len(times) == 2000
    assert times == sorted(times)


def test_a_saved_history_is_loaded_as_it_was() -> None:
    events = [*good_history(5), BrokerStopped(10**12)]
    assert list(load(io.StringIO(saved(events)))) == events


def test_an_invalid_event_is_reported_with_its_line() -> None:
    good = saved(good_history(5, steps=1))
    for line in ('["Nonsense",1]', '["Sent",1]', "[]", "{", "1"):
        with pytest.raises(ValueError, match=r"line \d+ is not an event"):
            list(load(io.StringIO(f"{good}{line}\n")))


def test_a_saved_history_can_be_checked_from_a_shell(tmp_path: Path) -> None:
    events = good_history(7)
    bad = [event._replace(records=[]) if isinstance(event, FinalRead) else event for event in events]
    assert check(events).anomalies == ()
    for name, history, code in (("good", events, 0), ("bad", bad, 1)):
        path = tmp_path / name
        path.write_text(saved(history))
        command = [sys.executable, "-m", "logbrook.testing.history", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, "LOST_WRITE" in done.stdout) == (code, name == "bad"), done
