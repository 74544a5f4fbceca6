"""`logbrook consume`, against a real broker."""

import json
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from logbrook import Broker
from logbrook.client import Client, TransactionalProducer
from logbrook.client.admin import Admin
from logbrook.client.record_writer import RecordWriter
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.unit.cli.shell import LOGBROOK, SECONDS_MAX, Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Records of 1970 would go with the first round of maintenance.
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


# How often a test looks before it gives up; each look is a command.
LOOKS_MAX = 200


def shared_evenly(shell: Shell, group: str) -> bool:
    described = shell.json("group", "describe", group)
    return described["state"] == "Stable" and [len(one["partitions"]) for one in described["members"]] == [1, 1]


def state_of(broker: Broker, group: str) -> str:
    with Client(broker.bootstrap_servers) as client:
        return {one.group_id: one.state for one in Admin(client).groups.all()}.get(group, "")


def words(*numbers: int) -> str:
    return "".join(f"v{number}\n" for number in numbers)


def test_it_prints_what_is_there_and_stops(shell: Shell) -> None:
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
def test_it_begins_and_stops_where_it_is_told(shell: Shell, arguments: list[str], numbers: range) -> None:
    assert shell.ok("consume", "words", *arguments) == words(*numbers)


def test_one_partition_of_several(shell: Shell) -> None:
    assert shell.ok("consume", "spread", "-p", "1").split() == [str(number) for number in range(1, 30, 3)]
    assert shell.ok("consume", "spread", "-p", "1", "-p", "2", "-o", "-1").split() == ["28", "29"]


def test_json_lines_say_all_of_a_record_and_can_be_produced_again(shell: Shell, broker: Broker) -> None:
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


def test_what_is_before_the_value_is_chosen_by_flags(shell: Shell) -> None:
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


def test_a_group_goes_on_where_it_was(shell: Shell) -> None:
    assert shell.ok("consume", "words", "-g", "readers", "-n", "3") == words(0, 1, 2)
    assert shell.ok("consume", "words", "-g", "readers", "-n", "3") == words(3, 4, 5)
    assert shell.ok("consume", "words", "-g", "readers") == words(6, 7, 8, 9)
    assert shell.ok("consume", "words", "-g", "readers") == ""
    assert shell.ok("consume", "words", "-g", "late-readers", "-o", "-2") == words(8, 9)


def test_two_members_share_the_partitions_and_the_one_that_stays_gets_all(shell: Shell, broker: Broker) -> None:
    broker.create_topic("shared", 2)
    with shell.start("consume", "shared", "-g", "pair", "-f") as first:
        assert first.stdout is not None
        shell.ok("produce", "shared", "-p", "0", stdin="a\n")
        assert first.stdout.readline() == b"a\n"
        with shell.start("consume", "shared", "-g", "pair", "-f", "-F", r"%p %v\n") as second:
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
def test_following_goes_on_with_partitions_that_are_added(shell: Shell, broker: Broker, how: list[str]) -> None:
    name = f"growing{len(how)}{'-'.join(how).count('group')}"
    broker.create_topic(name, 1)
    shell.ok("produce", name, stdin="before\n")
    with shell.start("consume", name, "-f", "-F", "%p:%o %v\\n", *how) as following:
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


def wait_for_reader(printed: IO[bytes], shell: Shell, topic: str) -> None:
    """A reader that begins at the end prints nothing until something comes that came after it."""
    while not select.select([printed], [], [], 0.2)[0]:
        shell.ok("produce", topic, stdin="after\n")
    offset = int(shell.json("topic", "describe", topic)["partitions"][0]["end_offset"]) - 1
    while not printed.readline().startswith(b"0:%d " % offset):
        pass


def test_only_the_partitions_that_were_asked_for_are_followed(shell: Shell, broker: Broker) -> None:
    broker.create_topic("fixed", 1)
    with shell.start("consume", "fixed", "-f", "-p", "0", "-n", "2") as following:
        assert following.stdout is not None
        shell.ok("produce", "fixed", stdin="one\n")
        assert following.stdout.readline() == b"one\n"
        shell.ok("topic", "add-partitions", "fixed", "--to", "2")
        shell.ok("produce", "fixed", "-p", "1", stdin="elsewhere\n")
        shell.ok("produce", "fixed", "-p", "0", stdin="two\n")
        assert following.communicate(timeout=SECONDS_MAX)[0] == b"two\n"


def test_following_prints_what_comes_and_ends_by_an_interrupt(shell: Shell, broker: Broker) -> None:
    broker.create_topic("live", 1)
    with shell.start("consume", "live", "-f") as following:
        assert following.stdout is not None
        for word in ("one", "two"):
            shell.ok("produce", "live", stdin=f"{word}\n")
            assert following.stdout.readline() == f"{word}\n".encode()
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=SECONDS_MAX)
        assert (following.returncode, out, err) == (0, b"", b"")


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


def test_a_reader_that_has_had_enough_is_no_error(shell: Shell, broker: Broker) -> None:
    broker.create_topic("long", 1)
    shell.ok("produce", "long", stdin="a line that is there many times\n" * 50_000)
    script = f"set -o pipefail; '{LOGBROOK}' consume long | head -n 1"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, env=shell.environment, timeout=SECONDS_MAX, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a line that is there many times\n", b"")


def test_what_a_transaction_has_not_committed_is_left_out_unless_it_is_wanted(shell: Shell, broker: Broker) -> None:
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
        (["-o", "noon"], "--from: 'noon' is none of: start, end,"),
        (["-f", "--until", "3"], "--until: it cannot go on for ever and stop"),
        (["-g", "x", "-p", "0"], "--group: a group decides itself what its members read"),
        (["-F", "%k %q"], "--format: the template has %q, which is none of %k key,"),
        (["-F", "jsn"], "--format: 'jsn' is not raw, json or hex, and as a template it has no %k key,"),
        (["-F", "%k\\q"], "--format: the template has a '\\\\' that begins nothing"),
        (["-F", "hex", "--print-key"], "--format: --print-... are for raw"),
        (["-F", "hex", "--json"], "--format: --json is a format of its own"),
        (["-p", "5"], "--partition: words has no partition 5 that could be asked; it has 1 partition"),
    ],
)
def test_wrong_usage_ends_with_2(shell: Shell, arguments: list[str], sentence: str) -> None:
    assert shell.refused("consume", "words", *arguments, code=2).startswith(sentence)


def test_a_topic_that_is_not_there_is_told(shell: Shell) -> None:
    sentence = "looking up topic nope: it is not there; `logbrook topic list` shows what is"
    assert shell.refused("consume", "nope") == sentence
    assert shell.refused("consume", "nope", "-g", "readers") == sentence


def test_a_broker_that_is_not_there_is_told_at_once(shell: Shell) -> None:
    told = shell.refused("consume", "words", "-b", "127.0.0.1:1")
    assert told.startswith("cannot connect to 127.0.0.1:1: Connection refused; is a broker running there?")
