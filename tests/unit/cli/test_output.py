"""Standard output that cannot be written, and control characters on terminals."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.cli.output import escape_bytes, escape_controls
from logbrook.client import Client
from logbrook.client.coordinators import Coordinators
from logbrook.client.record_writer import RecordWriter
from logbrook.model import TopicPartition
from logbrook.records.record import Record
from tests.unit.cli.invocation import SECONDS_MAX
from tests.unit.cli.shell import LOGBROOK, Shell

RED = b"\x1b[31mred\x07\xff\tand\nmore\x7f\xc2\x9b\xc3\xa9"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Records with timestamps of 1970 would be deleted by the first round of maintenance.
    settings = {"groups": {"initial_rebalance_delay_ms": 0}, "maintenance": {"mode": "on-demand"}}
    with Broker({"words": 1}, settings=settings) as broker:
        with Client(broker.bootstrap_servers) as client, RecordWriter(client, "words") as writer:
            writer.write(Record(b"\x1b]0;key\x07", RED, (("h\x1b", b"\x1bc"),), 0))
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap_servers, tmp_path)


@pytest.mark.parametrize(
    "arguments", ["--help", "config show", "topic list", "consume words --json", "consume words --group full"]
)
def test_a_full_device_is_reported_in_one_sentence(shell: Shell, arguments: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [LOGBROOK, *arguments.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            env=shell.environment,
            timeout=SECONDS_MAX,
            check=False,
        )
    sentence = b"error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, sentence)


def test_records_that_could_not_be_printed_are_not_committed(shell: Shell) -> None:
    with open("/dev/full", "wb") as full:
        command = [LOGBROOK, "consume", "words", "--group", "retried"]
        subprocess.run(command, stdout=full, env=shell.environment, timeout=SECONDS_MAX, check=False)
    assert len(shell.lines("consume", "words", "--group", "retried")) == 1


def test_a_closed_standard_output_is_no_traceback(shell: Shell) -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{LOGBROOK}' consume words >&-"],
        stderr=subprocess.PIPE,
        env=shell.environment,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], "\\x1b[31mred\\x07\\xff\tand\nmore\\x7f\\x9bé\n"),
        (["--print-key"], "\\x1b]0;key\\x07\t\\x1b[31mred\\x07\\xff\tand\nmore\\x7f\\x9bé\n"),
        (["-F", r"<%h> %K %V\n"], "<h\\x1b=\\x1bc> 8 24\n"),
        (["-F", "hex"], "header h\\x1b: 2 bytes\n"),
    ],
)
def test_control_characters_of_records_are_escaped_on_a_terminal(shell: Shell, options: list[str], shown: str) -> None:
    code, seen = shell.on_terminal("consume", "words", *options)
    assert code == 0
    assert shown.expandtabs() in seen.expandtabs()


def test_json_on_a_terminal_stays_json(shell: Shell, broker: Broker) -> None:
    broker.create_topic("c1", 1)
    shell.ok("produce", "c1", stdin="\x9b31m\x7f\x1b")
    code, seen = shell.on_terminal("consume", "c1", "--json", width=400)
    assert code == 0
    assert '"value": "\\u009b31m\\u007f\\u001b"' in seen


def test_control_characters_in_a_template_reach_the_terminal(shell: Shell) -> None:
    # The terminal of the tests removes colours, so the rest of the sequence is gone only if it began with a raw escape.
    assert shell.on_terminal("consume", "words", "-F", r"\x1b[1mbold %p\n")[1] == "bold 0\n"


def test_output_that_is_not_a_terminal_is_raw(shell: Shell) -> None:
    value = shell.json("consume", "words")["value"]
    assert value == "G1szMW1yZWQH/wlhbmQKbW9yZX/Cm8Op"
    with shell.start("consume", "words") as consuming:
        assert consuming.communicate(timeout=SECONDS_MAX)[0] == RED + b"\n"


def test_a_group_id_cannot_act_on_the_terminal(shell: Shell, broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        Coordinators(client).commit("evil\x1b[2J\nid", {TopicPartition("words", 0): 1})
    code, seen = shell.on_terminal("group", "list", width=80)
    assert code == 0
    assert "evil\\x1b[2J\\nid" in seen
    assert "evil\\x1b[2J\\nid" in shell.on_terminal("group", "describe", "evil\x1b[2J\nid", width=80)[1]


def test_escapes_keep_text_tabs_and_line_ends() -> None:
    assert escape_controls("é\t\n\\ 🙂") == "é\t\n\\ 🙂"
    assert escape_bytes(b"\r\x00") == b"\\x0d\\x00"
