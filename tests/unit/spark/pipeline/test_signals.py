"""The first signal requests a stop, the second forces it."""

import os
import signal
import subprocess
import sys

import pytest

from logbrook.spark.pipeline.command import StopSignals

TWICE = """
import os, signal
from logbrook.spark.pipeline.command import StopSignals

with StopSignals() as signals:
    os.kill(os.getpid(), {number})
    assert signals.stop_requested.wait(10)
    print("asked", flush=True)
    os.kill(os.getpid(), {number})
    signals.stop_requested.clear()
    signals.stop_requested.wait(10)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    script = TWICE.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "asked\n", "")


def test_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.stop_requested.wait(10)
    assert signal.getsignal(signal.SIGTERM) is before
