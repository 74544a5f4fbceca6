"""`logbrook produce`, against a real broker; what was written is read with our own client."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.cluster import Cluster
from logbrook.client.positions import Positions, Start
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.records.batch import Codec, iter_headers
from logbrook.records.record import RawRecord
from tests.unit.cli.shell import SECONDS_MAX, Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap_servers, tmp_path)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    broker.create_topic(name, 4)
    return name


def read(broker: Broker, topic: str) -> dict[int, list[RawRecord]]:
    found: dict[int, list[RawRecord]] = {}
    with Client(broker.bootstrap_servers) as client:
        positions = Positions(Cluster(client), [TopicPartition(topic, number) for number in client.partitions(topic)])
        with RecordsReader(client, positions.offsets(Start()), ends=positions.ends) as reader:
            while not reader.is_done:
                for run in reader.read():
                    found.setdefault(run.partition.partition, []).extend(run.records)
    return found


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [one.value for records in read(broker, topic).values() for one in records]


def test_lines_become_records_and_the_last_needs_no_end(shell: Shell, broker: Broker, topic: str) -> None:
    done = shell.run("produce", topic, stdin="one\n\nthree \ttabbed\r\nfour")
    assert (done.code, done.out, done.err) == (0, "", f"4 records written to {topic}\n")
    assert values(broker, topic) == [b"one", b"", b"three \ttabbed\r", b"four"]


def test_no_line_is_no_record(shell: Shell, broker: Broker, topic: str) -> None:
    assert shell.run("produce", topic).err == f"0 records written to {topic}\n"
    assert values(broker, topic) == []


def test_keys_go_where_clients_in_java_put_them(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", topic, "-K", ": ", stdin="21: a\nfoobar: b\n: c\n21: d: e\n")
    found = read(broker, topic)
    places = {(one.key, one.value): partition for partition, records in found.items() for one in records}
    # By Kafka's own UtilsTest: murmur2("21") is -973932308, murmur2("foobar") -790332482, murmur2("") 275646681.
    assert places == {
        (b"21", b"a"): (-973932308 & 0x7FFFFFFF) % 4,
        (b"21", b"d: e"): (-973932308 & 0x7FFFFFFF) % 4,
        (b"foobar", b"b"): (-790332482 & 0x7FFFFFFF) % 4,
        (b"", b"c"): 275646681 % 4,
    }


def test_a_line_without_the_separator_stops_it_with_its_number(shell: Shell, broker: Broker, topic: str) -> None:
    told = shell.refused("produce", topic, "-K", ":", stdin="a:1\nb:2\nc\nd:4\n")
    assert told == f"line 3: it has no key separator ':'; 2 records written to {topic} before it"
    assert sorted(values(broker, topic), key=str) == [b"1", b"2"]


def test_one_key_one_partition_and_headers_for_all(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", topic, "-k", "k", "-p", "3", "-H", "a=1", "-H", "b=", "-Z", stdin="x\n\n")
    (records,) = [read(broker, topic)[3]]
    assert [(one.key, one.value, one.headers) for one in records] == [
        (b"k", b"x", (("a", b"1"), ("b", b""))),
        (b"k", None, (("a", b"1"), ("b", b""))),
    ]


def test_json_lines_say_all_of_a_record(shell: Shell, broker: Broker, topic: str) -> None:
    lines = [
        {"key": "k", "value": "é", "headers": {"h": "1"}, "partition": 2, "timestamp": 1234},
        {"key": "AP8=", "key_encoding": "base64", "partition": 2, "timestamp": "1970-01-01T00:00:02Z"},
        {"value": {"nested": [1]}, "partition": 2, "timestamp": 3, "headers": [{"key": "h", "value": None}]},
    ]
    report = shell.json("produce", topic, stdin="\n\n".join(json.dumps(line) for line in lines))
    assert report == {"topic": topic, "records": 3}
    assert [(one.timestamp, one.key, one.value, one.headers) for one in read(broker, topic)[2]] == [
        (1234, b"k", "é".encode(), (("h", b"1"),)),
        (2000, b"\x00\xff", None, ()),
        (3, None, b'{"nested": [1]}', (("h", None),)),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "it is no JSON: Expecting property name"),
        ("[1]", 'it is no JSON object such as {"key": "k", "value": "v"}'),
        ('{"partition": "1"}', "its partition is '1', and has to be a number"),
        ('{"partition": 9}', "partition 9 does not exist"),
        ('{"timestamp": "soon"}', "its timestamp is 'soon'"),
        ('{"timestamp": true}', "its timestamp is True"),
        ('{"value": "!", "value_encoding": "base64"}', "its value is not base64"),
        ('{"value": "!", "value_encoding": "rot13"}', "its value_encoding is 'rot13'"),
        ('{"headers": [1]}', "its headers have to be"),
        ('{"key": "\\ud800"}', "its key has half of a surrogate pair"),
    ],
)
def test_bad_json_is_told_with_its_line(shell: Shell, topic: str, line: str, sentence: str) -> None:
    assert shell.refused("produce", topic, "--json", stdin=f"{{}}\n{line}\n").startswith(f"line 2: {sentence}")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(shell: Shell, broker: Broker, topic: str, codec: str) -> None:
    shell.ok("produce", topic, "-p", "0", "-z", codec, stdin="same\n" * 1000)
    with Client(broker.bootstrap_servers) as client:
        headers = [header for _, header in iter_headers(client.fetch(topic, 0, 0).records)]
    assert {header.codec for header in headers} == {Codec[codec.upper()]}
    assert values(broker, topic) == [b"same"] * 1000


def test_with_all_acks_the_producer_is_idempotent_and_with_fewer_it_is_not(
    shell: Shell, broker: Broker, topic: str
) -> None:
    for acks in ("all", "1", "0"):
        shell.ok("produce", topic, "-p", "0", "--acks", acks, stdin=f"{acks}\n")
    with Client(broker.bootstrap_servers) as client:
        # The last was sent and not answered, so it may still be on its way.
        headers = [header for _, header in iter_headers(client.fetch(topic, 0, 0).records)]
    assert [header.producer_id >= 0 for header in headers][:2] == [True, False]


def test_a_large_file_comes_through_whole(shell: Shell, broker: Broker, topic: str, tmp_path: Path) -> None:
    lines = [b"%07d %s" % (number, b"x" * (number % 90)) for number in range(60_000)]
    lines[777] = b"long " * 100_000
    file = tmp_path / "lines.txt"
    file.write_bytes(b"\n".join(lines) + b"\n")
    assert shell.run("produce", topic, "-f", str(file)).err == f"60,000 records written to {topic}\n"
    found = read(broker, topic)
    assert len(found) > 1, "lines without a key are spread"
    assert sorted(one.value or b"" for records in found.values() for one in records) == sorted(lines)
    for records in found.values():
        numbered = [one.value or b"" for one in records if not (one.value or b"").startswith(b"long")]
        assert numbered == sorted(numbered), "within a partition they stay in order"


def test_a_file_on_a_terminal_has_a_progress_bar(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a line of the file, more or less like any other\n" * 200_000)
    code, seen = shell.on_terminal("produce", topic, "--file", str(file), width=80)
    assert code == 0
    assert "writing ━" in seen
    assert "/9.2 MiB" in seen
    assert all(len(line) <= 80 for frame in seen.splitlines() for line in frame.split("\r"))
    assert seen.splitlines()[-1].endswith(f"200,000 records written to {topic}")


def test_what_is_typed_is_written_at_once(shell: Shell, broker: Broker, topic: str) -> None:
    with shell.start("produce", topic) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"first\nhalf of the second")
        producing.stdin.flush()
        with shell.start("consume", topic, "--follow", "-n", "1") as consuming:
            assert consuming.communicate(timeout=SECONDS_MAX)[0] == b"first\n"
        producing.send_signal(signal.SIGINT)
        _, err = producing.communicate(timeout=SECONDS_MAX)
        assert (producing.returncode, err.decode()) == (130, f"stopped; 1 record written to {topic}\n")


def test_a_record_that_is_too_large_says_what_to_do(shell: Shell, topic: str) -> None:
    told = shell.refused("produce", topic, stdin=b"x" * 2_000_000)
    assert "a record is larger than the topic takes; raise its max.message.bytes" in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p", "4"], "--partition: {topic} has 4 partitions, counted from 0"),
        (["-H", "x"], "--header: 'x' is not NAME=VALUE"),
        (["-K", ""], "--key-separator: it is empty"),
        (["-K", ":", "-k", "x"], "--key-separator: a key is given for all records, or found in each"),
        (["--json", "-k", "x"], "--json: keys and headers are in the JSON objects"),
    ],
)
def test_wrong_usage_ends_with_2(shell: Shell, topic: str, arguments: list[str], sentence: str) -> None:
    assert shell.refused("produce", topic, *arguments, code=2) == sentence.format(topic=topic)


def test_a_topic_or_file_that_is_not_there_is_told(shell: Shell, topic: str, tmp_path: Path) -> None:
    assert shell.refused("produce", "nope").startswith("looking up topic nope: it is not there")
    assert shell.refused("produce", topic, "-f", "nope.txt") == "nope.txt cannot be read: No such file or directory"
    assert shell.refused("produce", topic, "-f", str(tmp_path)) == f"{tmp_path} is a directory"
