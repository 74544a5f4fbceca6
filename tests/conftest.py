"""Says at the end of every run how many power-loss states were checked, and how often a broker was killed."""

import signal

import hypothesis
import pytest

from tests.crash.conftest import pytest_terminal_summary as report_crashes
from tests.kill.conftest import report_kills


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    report_crashes(terminalreporter)
    report_kills(terminalreporter)


def pytest_configure() -> None:
    """How the tests run, whatever the machine does besides: they assert no times, and neither does Hypothesis. A run in
    the background ignores Ctrl-C, and so would the commands that tests interrupt."""
    hypothesis.settings.register_profile("logbrook", deadline=None)
    hypothesis.settings.load_profile("logbrook")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
