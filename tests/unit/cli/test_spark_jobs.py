"""Commands on Spark: mistakes are reported before Spark starts."""

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from logbrook import Broker
from logbrook.cli.spark_jobs import archive_app, audit_app, replay_app, topic_options

CLOSED = "127.0.0.1:1"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(topics=["there"]) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("logbrook.spark.sessions.session", refuse)
    monkeypatch.setattr("logbrook.spark.session", refuse, raising=False)


@pytest.mark.parametrize("command", ["archive", "audit", "replay"])
@pytest.mark.parametrize(
    ("topic", "more", "code", "says"),
    [
        ("missing", [], 3, "there is no topic 'missing'"),
        ("there", ["--from", "yesterday"], 2, "option 'startingOffsets'"),
        ("there", ["--to", "earliest"], 2, "option 'endingOffsets'"),
        ("there", ["-b", CLOSED], 3, f"the cluster at {CLOSED} cannot be asked"),
    ],
)
def test_mistakes_are_reported_before_spark_starts(
    servers: str, command: str, topic: str, more: list[str], code: int, says: str
) -> None:
    arguments = {"archive": [topic, "table"], "audit": [topic], "replay": ["target", "--topic", topic]}[command]
    app = {"archive": archive_app, "audit": audit_app, "replay": replay_app}[command]
    done = CliRunner().invoke(app, [*arguments, "-b", servers, *more])
    assert done.exit_code == code, done.output
    assert says in done.output.replace("\n", " ")
    assert "Traceback" not in done.output


def test_a_replay_has_one_source() -> None:
    for sources in ([], ["--topic", "a", "--table", "b"]):
        done = CliRunner().invoke(replay_app, ["target", *sources])
        assert done.exit_code == 2
        assert "either --topic or --table" in done.output


def test_a_number_is_a_time_and_everything_else_is_offsets() -> None:
    options = topic_options("s", "t", "1700000000000", "-1h")
    assert options["startingTimestamp"] == "1700000000000"
    assert options["endingOffsets"] == "-1h"
