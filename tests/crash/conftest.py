"""Report how many states were checked: zero failures in N trials bound the failure rate at 3/N."""

import pytest

STATES_CHECKED = "states checked"
SECOND_STATES_CHECKED = "states checked after a second cut"


def report_states(terminalreporter: pytest.TerminalReporter) -> None:
    totals = {STATES_CHECKED: 0, SECOND_STATES_CHECKED: 0}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name in totals and report.when == "call":
                assert isinstance(value, int)
                totals[name] += value
    states = totals[STATES_CHECKED]
    if states:
        terminalreporter.write_line(
            f"power loss: {states:,} states without a failure, {totals[SECOND_STATES_CHECKED]:,} of them after a "
            f"second cut; fewer than {3 / states:.1e} of such states fail (95 %)"
        )
