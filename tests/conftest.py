"""Says at the end of every run how many power-loss states were checked, and how often a broker was killed."""

import pytest

from tests.crash.conftest import pytest_terminal_summary as report_crashes
from tests.kill.conftest import report_kills


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    report_crashes(terminalreporter)
    report_kills(terminalreporter)
