"""`python -m logbrook.testing.crash --replay`: the error of a state, also if the workload no longer has that state."""

import pytest

from logbrook.testing.crash import __main__ as command


def replay(monkeypatch: pytest.MonkeyPatch, state: str) -> int:
    monkeypatch.setattr("sys.argv", ["crash", "--replay", state])
    return command.main()


def test_a_state_is_checked_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(monkeypatch, "0/5:TORN:0") == 0
    assert capsys.readouterr().out == "0/5:TORN:0: no error\n"


@pytest.mark.parametrize("state", ["0/99999:TORN:0", "0/5:KEPT:0/99999:KEPT:0"])
def test_a_state_after_the_end_of_the_workload_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    """A change of the workload or the engine moves the states of a seed, so those of earlier versions may be gone."""
    assert replay(monkeypatch, state) == 2
    assert f"{state}: there is no such state: the journal has" in capsys.readouterr().out
