"""Report how many kills there were: zero failures in N trials bound the failure rate at 3/N."""

import pytest

KILLS = "kills"


def report_kills(terminalreporter: pytest.TerminalReporter) -> None:
    kills = 0
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == KILLS and report.when == "call":
                assert isinstance(value, int)
                kills += value
    if kills:
        terminalreporter.write_line(
            f"kill: {kills:,} kills without a failure; fewer than {3 / kills:.1e} of such kills fail (95 %)"
        )
