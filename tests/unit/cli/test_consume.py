"""`logbrook consume`, against a real broker."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import IO

import pytest

from logbrook import Broker
from logbrook.client import Client, TransactionalProducer
from logbrook.client.admin import Admin
from logbrook.client.record_writer import RecordWriter
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import free_port
from tests.processes import is_readable
from tests.unit.cli.invocation import SECONDS_MAX
from tests.unit.cli.shell import LOGBROOK, Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Records with timestamps of 1970 would be deleted by the first round of maintenance.
    settings = {"groups": {"initial_rebalance_delay_ms": 0}, "maintenance": {"mode": "on-demand"}}
    with Broker({"words": 1, "spread": 3}, settings=settings) as broker:
        with Client(broker.bootstrap_servers) as client:
            with RecordWriter(client, "words", codec=Codec.LZ4) as writer:
                for number in range(10):
                    writer.write(Record(b"k%d" % number, b"v%d" % number, (), 1_000 * number))
            with RecordWriter(client, "spread", codec=Codec.GZIP) as writer:
                for number in range(30):
                    writer.write(Record(None, b"%d" % number, (), 1_000), number % 3)
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap_servers, tmp_path)


# Makes a consumer look for partitions and rebalances ten times a second, instead of every few seconds.
OFTEN = """
from functools import partial
from logbrook.cli import consume_readers
consume_readers._METADATA_INTERVAL_S = 0.1
consume_readers.GroupMember = partial(consume_readers.GroupMember, heartbeat_s=0.1)
"""
# Number of attempts, each of which is a command.
LOOKS_MAX = 200


def shared_evenly(shell: Shell, group: str) -> bool:
    described = shell.json("group", "describe", group)
    return described["state"] == "Stable" and [len(member["partitions"]) for member in described["members"]] == [1, 1]


def state_of(broker: Broker, group: str) -> str:
    with Client(broker.bootstrap_servers) as client:
        return {listing.group_id: listing.state for listing in Admin(client).groups.all()}.get(group, "")


def words(*numbers: int) -> str:
    return "".join(f"v{number}\n" for number in numbers)


def test_it_prints_existing_records_and_exits(shell: Shell) -> None:
    assert shell.ok("consume", "words") == words(*range(10))
    assert sorted(shell.ok("consume", "spread").split(), key=int) == [str(number) for number in range(30)]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["--from", "start"], range(10)),
        (["-o", "beginning", "-n", "2"], range(2)),
        (["-o", "end"], range(0)),
        (["-o", "7"], range(7, 10)),
        (["-o", "-3"], range(7, 10)),
        (["-o", "-100"], range(10)),
        (["-o", "100"], range(0)),
        (["-o", "3", "--until", "5"], range(3, 5)),
        (["--until", "-8"], range(2)),
        (["-o", "1970-01-01T00:00:06.5Z"], range(7, 10)),
        (["-o", "@6000"], range(6, 10)),
        (["--until", "@2000"], range(2)),
        (["-o", "-10m"], range(0)),
        (["-o", "-40000w"], range(10)),
    ],
)
def test_from_and_until_bound_the_records(shell: Shell, arguments: list[str], numbers: range) -> None:
    assert shell.ok("consume", "words", *arguments) == words(*numbers)


def test_a_pattern_reads_all_topics_that_match(shell: Shell, broker: Broker) -> None:
    for name in ("pattern-a", "pattern-b"):
        broker.create_topic(name, 1)
        shell.ok("produce", name, stdin=f"{name}\n")
    assert sorted(shell.ok("consume", "pattern-*", "pattern-a").split()) == ["pattern-a", "pattern-b"]
    assert sorted(shell.ok("consume", "^pattern-[ab]$", "-g", "matching").split()) == ["pattern-a", "pattern-b"]
    assert shell.refused("consume", "nothing-*") == (
        "no topic matches 'nothing-*'; `logbrook topic list` shows the topics"
    )


def test_one_partition_of_several(shell: Shell) -> None:
    assert shell.ok("consume", "spread", "-p", "1").split() == [str(number) for number in range(1, 30, 3)]
    assert shell.ok("consume", "spread", "-p", "1", "-p", "2", "-o", "-1").split() == ["28", "29"]


def test_json_lines_have_every_field_and_can_be_produced_again(shell: Shell, broker: Broker) -> None:
    broker.create_topic("told", 1)
    broker.create_topic("told-again", 1)
    with Client(broker.bootstrap_servers) as client, RecordWriter(client, "told") as writer:
        writer.write(Record(b"k", "é".encode(), (("h", b"1"), ("n", None)), 1234))
        writer.write(Record(None, b"\xff\x00", (("b", b"\xfe"),), 5678))
        writer.write(Record(b"\x80", None, (), 9))
    printed = shell.ok("consume", "told", "--json")
    assert [json.loads(line) for line in printed.splitlines()] == [
        {
            "topic": "told",
            "partition": 0,
            "offset": 0,
            "timestamp": 1234,
            "key": "k",
            "value": "é",
            "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
        },
        {
            "topic": "told",
            "partition": 0,
            "offset": 1,
            "timestamp": 5678,
            "key": None,
            "value": "/wA=",
            "value_encoding": "base64",
            "headers": [{"key": "b", "value": "/g==", "value_encoding": "base64"}],
        },
        {
            "topic": "told",
            "partition": 0,
            "offset": 2,
            "timestamp": 9,
            "key": "gA==",
            "key_encoding": "base64",
            "value": None,
            "headers": [],
        },
    ]
    shell.ok("produce", "told-again", "--json", stdin=printed)
    assert shell.ok("consume", "told-again", "-F", "json").replace("told-again", "told") == printed


@pytest.mark.parametrize(
    ("template", "line"),
    [
        (r"%k=%v\n", "k5=v5\n"),
        (r"%t/%p/%o %T %d [%h]\n", "words/0/5 5000 1970-01-01T00:00:05.000Z []\n"),
        (r"%K %V %S %s%%\t\x41\\", "2 2 2 v5%\tA\\"),
    ],
)
def test_a_template_has_letters_as_in_kcat(shell: Shell, template: str, line: str) -> None:
    assert shell.ok("consume", "words", "-o", "5", "-n", "1", "-F", template) == line


def test_print_options_add_fields_before_the_value(shell: Shell) -> None:
    flags = ["--print-key", "--print-offset", "--print-timestamp", "--print-headers"]
    line = shell.ok("consume", "words", "-o", "5", "-n", "1", *flags)
    assert line == "1970-01-01T00:00:05.000Z\t0:5\t\tk5\tv5\n"
    assert shell.ok("consume", "words", "-o", "5", "-n", "1", "--print-key", "--separator", "%") == "k5%v5\n"


def test_hex_shows_bytes(shell: Shell) -> None:
    assert shell.ok("consume", "words", "-o", "5", "-n", "1", "-F", "hex").splitlines() == [
        "words-0 offset 5 at 1970-01-01T00:00:05.000Z",
        "key: 2 bytes",
        "  00000000  6b 35                                            k5",
        "value: 2 bytes",
        "  00000000  76 35                                            v5",
    ]


def test_a_group_continues_at_its_committed_offsets(shell: Shell) -> None:
    assert shell.ok("consume", "words", "-g", "readers", "-n", "3") == words(0, 1, 2)
    assert shell.ok("consume", "words", "-g", "readers", "-n", "3") == words(3, 4, 5)
    assert shell.ok("consume", "words", "-g", "readers") == words(6, 7, 8, 9)
    assert shell.ok("consume", "words", "-g", "readers") == ""
    assert shell.ok("consume", "words", "-g", "late-readers", "-o", "-2") == words(8, 9)


def test_two_members_share_the_partitions_and_the_one_that_stays_gets_all(shell: Shell, broker: Broker) -> None:
    broker.create_topic("shared", 2)
    with shell.start("consume", "shared", "-g", "pair", "-f", prelude=OFTEN) as first:
        assert first.stdout is not None
        shell.ok("produce", "shared", "-p", "0", stdin="a\n")
        assert first.stdout.readline() == b"a\n"
        with shell.start("consume", "shared", "-g", "pair", "-f", "-F", r"%p %v\n", prelude=OFTEN) as second:
            assert second.stdout is not None
            assert any(shared_evenly(shell, "pair") for _ in range(LOOKS_MAX)), "each has a partition"
            shell.ok("produce", "shared", "-p", "0", stdin="b\n")
            shell.ok("produce", "shared", "-p", "1", stdin="b\n")
            assert first.stdout.readline() == b"b\n"
            assert second.stdout.readline() in (b"0 b\n", b"1 b\n")
            second.send_signal(signal.SIGINT)
            assert second.wait(SECONDS_MAX) == 0
        shell.ok("produce", "shared", "-p", "0", stdin="c\n")
        shell.ok("produce", "shared", "-p", "1", stdin="c\n")
        assert [first.stdout.readline(), first.stdout.readline()] == [b"c\n", b"c\n"]
        first.send_signal(signal.SIGINT)
        assert first.wait(SECONDS_MAX) == 0
    left = shell.json("group", "describe", "pair")
    assert (left["state"], left["lag"], left["members"]) == ("Empty", 0, [])


@pytest.mark.parametrize("how", [[], ["--from", "end"], ["--group", "growers"], ["--group", "enders", "-o", "end"]])
def test_following_reads_added_partitions(shell: Shell, broker: Broker, how: list[str]) -> None:
    name = f"growing{len(how)}{'-'.join(how).count('group')}"
    broker.create_topic(name, 1)
    shell.ok("produce", name, stdin="before\n")
    with shell.start("consume", name, "-f", "-F", "%p:%o %v\\n", *how, prelude=OFTEN) as following:
        assert following.stdout is not None
        if "end" in how:
            wait_for_reader(following.stdout, shell, name)
        else:
            assert following.stdout.readline() == b"0:0 before\n"
        shell.ok("topic", "add-partitions", name, "--to", "3")
        shell.ok("produce", name, "-p", "2", stdin="in a new one\n")
        assert following.stdout.readline() == b"2:0 in a new one\n"
        shell.ok("produce", name, "-p", "1", stdin="in another\n")
        assert following.stdout.readline() == b"1:0 in another\n"
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=SECONDS_MAX)
        assert (following.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize("how", [[], ["--group", "watchers"]])
def test_following_a_pattern_reads_new_topics_that_match(shell: Shell, broker: Broker, how: list[str]) -> None:
    name = f"watched{len(how)}"
    broker.create_topic(f"{name}-1", 1)
    shell.ok("produce", f"{name}-1", stdin="before\n")
    with shell.start("consume", f"{name}-*", "-f", "-F", "%t %v\\n", *how, prelude=OFTEN) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == f"{name}-1 before\n".encode()
        for topic in (f"not-{name}", f"{name}-2"):
            broker.create_topic(topic, 1)
            shell.ok("produce", topic, stdin="later\n")
        assert following.stdout.readline() == f"{name}-2 later\n".encode()
        following.send_signal(signal.SIGTERM)
        out, err = following.communicate(timeout=SECONDS_MAX)
        assert (following.returncode, out, err) == (0, b"", b"")


def wait_for_reader(printed: IO[bytes], shell: Shell, topic: str) -> None:
    """Wait until the reader has started: it begins at the end, and prints only records that are produced afterwards."""
    until_s = monotonic() + SECONDS_MAX
    while not is_readable(printed.fileno(), 0.1):
        assert monotonic() < until_s, "nothing came"
        shell.ok("produce", topic, stdin="after\n")
    offset = int(shell.json("topic", "describe", topic)["partitions"][0]["end_offset"]) - 1
    while not (line := printed.readline()).startswith(b"0:%d " % offset):
        assert line, f"the reader ended before offset {offset}"


def test_only_the_chosen_partitions_are_followed(shell: Shell, broker: Broker) -> None:
    broker.create_topic("fixed", 1)
    with shell.start("consume", "fixed", "-f", "-p", "0", "-n", "2", prelude=OFTEN) as following:
        assert following.stdout is not None
        shell.ok("produce", "fixed", stdin="one\n")
        assert following.stdout.readline() == b"one\n"
        shell.ok("topic", "add-partitions", "fixed", "--to", "2")
        shell.ok("produce", "fixed", "-p", "1", stdin="elsewhere\n")
        shell.ok("produce", "fixed", "-p", "0", stdin="two\n")
        assert following.communicate(timeout=SECONDS_MAX)[0] == b"two\n"


def test_following_prints_new_records_until_an_interrupt(shell: Shell, broker: Broker) -> None:
    broker.create_topic("live", 1)
    with shell.start("consume", "live", "-f") as following:
        assert following.stdout is not None
        for word in ("one", "two"):
            shell.ok("produce", "live", stdin=f"{word}\n")
            assert following.stdout.readline() == f"{word}\n".encode()
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=SECONDS_MAX)
        assert (following.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize("how", [[], ["--group", "stayers"]])
def test_following_reconnects_when_the_broker_is_back_and_reports_it_once(tmp_path: Path, how: list[str]) -> None:
    # A port outside of the ephemeral range, see `free_port`.
    address = f"127.0.0.1:{free_port()}"
    settings = {"network": {"listen": address}}
    broker = Broker(["live"], data=str(tmp_path / "data"), settings=settings)
    broker.start()
    shell = Shell(address, tmp_path)
    try:
        shell.ok("produce", "live", stdin="before\n")
        with shell.start("consume", "live", "-f", *how, prelude=OFTEN) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            assert following.stdout.readline() == b"before\n"
            broker.stop()
            assert following.stderr.readline().endswith(b"; reconnecting until Ctrl-C\n")
            broker.start()
            shell.ok("produce", "live", stdin="after\n")
            assert following.stdout.readline() == b"after\n"
            following.send_signal(signal.SIGINT)
            out, err = following.communicate(timeout=SECONDS_MAX)
            assert (following.returncode, out, err) == (0, b"", b"reconnected\n")
    finally:
        broker.stop()


def test_an_interrupt_while_it_waits_for_its_group_leaves_the_group(tmp_path: Path) -> None:
    with Broker(["words"], settings={"groups": {"initial_rebalance_delay_ms": 600_000}}) as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        with shell.start("consume", "words", "-g", "waiting") as consuming:
            assert any(state_of(broker, "waiting") == "PreparingRebalance" for _ in range(100 * LOOKS_MAX))
            consuming.send_signal(signal.SIGINT)
            _, err = consuming.communicate(timeout=SECONDS_MAX)
            assert (consuming.returncode, err) == (130, b"stopped\n")
        with Client(broker.bootstrap_servers) as client:
            assert Admin(client).groups.describe("waiting").members == ()


def test_sigterm_commits_leaves_the_group_and_is_the_normal_end_of_following(shell: Shell) -> None:
    with shell.start("consume", "words", "-g", "terminated", "-f") as following:
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(10)][-1] == b"v9\n"
        following.send_signal(signal.SIGTERM)
        out, err = following.communicate(timeout=SECONDS_MAX)
        assert (following.returncode, out, err) == (0, b"", b"")
    left = shell.json("group", "describe", "terminated")
    assert (left["state"], left["lag"], left["members"]) == ("Empty", 0, [])


def test_sigterm_while_it_waits_for_its_group_leaves_the_group(tmp_path: Path) -> None:
    with Broker(["words"], settings={"groups": {"initial_rebalance_delay_ms": 600_000}}) as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        with shell.start("consume", "words", "-g", "waiting") as consuming:
            assert any(state_of(broker, "waiting") == "PreparingRebalance" for _ in range(100 * LOOKS_MAX))
            consuming.send_signal(signal.SIGTERM)
            _, err = consuming.communicate(timeout=SECONDS_MAX)
            assert (consuming.returncode, err) == (143, b"stopped\n")
        with Client(broker.bootstrap_servers) as client:
            assert Admin(client).groups.describe("waiting").members == ()


def test_a_closed_output_pipe_is_not_an_error(shell: Shell, broker: Broker) -> None:
    broker.create_topic("long", 1)
    shell.ok("produce", "long", stdin="a line that is there many times\n" * 50_000)
    script = f"set -o pipefail; '{LOGBROOK}' consume long | head -n 1"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, env=shell.environment, timeout=SECONDS_MAX, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a line that is there many times\n", b"")


def test_aborted_records_are_skipped_unless_read_uncommitted(shell: Shell, broker: Broker) -> None:
    broker.create_topic("settled", 1)

    def write(producer: TransactionalProducer, value: bytes) -> None:
        batch = build_batch(
            [Record(None, value, (), 1)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.next_sequence("settled", 0),
            transactional=True,
        )
        producer.send("settled", 0, batch)

    with Client(broker.bootstrap_servers) as client, TransactionalProducer(client, "settling") as producer:
        producer.begin()
        write(producer, b"kept")
        producer.commit()
        producer.begin()
        write(producer, b"dropped")
        producer.flush()
        producer.abort()
    assert shell.ok("consume", "settled") == "kept\n"
    assert shell.ok("consume", "settled", "--isolation", "read_uncommitted") == "kept\ndropped\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-o", "noon"], "--from: 'noon' is not a place; write start, end,"),
        (["-f", "--until", "3"], "--until: it cannot be combined with --follow"),
        (["-g", "x", "-p", "0"], "--group: a group assigns partitions"),
        (["-F", "%k %q"], "--format: the template has %q, which is none of %k key,"),
        (["-F", "jsn"], "--format: 'jsn' is not raw, json or hex, and not a template with %k key,"),
        (["-F", "%k\\q"], "--format: the template has an incomplete '\\\\'"),
        (["-F", "hex", "--print-key"], "--format: the --print-... options are for raw"),
        (["-F", "hex", "--json"], "--format: it cannot be combined with --json"),
        (["-p", "5"], "--partition: words has no available partition 5; it has 1 partition"),
    ],
)
def test_wrong_usage_ends_with_2(shell: Shell, arguments: list[str], sentence: str) -> None:
    assert shell.refused("consume", "words", *arguments, code=2).startswith(sentence)


def test_a_missing_topic_is_reported(shell: Shell) -> None:
    sentence = "looking up topic nope: it does not exist; `logbrook topic list` shows the topics"
    assert shell.refused("consume", "nope") == sentence
    assert shell.refused("consume", "nope", "-g", "readers") == sentence


def test_an_unreachable_broker_is_reported_at_once(shell: Shell) -> None:
    message = shell.refused("consume", "words", "-b", "127.0.0.1:1")
    assert message.startswith("cannot connect to 127.0.0.1:1: Connection refused; is a broker running there?")
