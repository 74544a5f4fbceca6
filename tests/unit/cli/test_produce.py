"""`logbrook produce`, against a real broker; what was written is read with our own client."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.cli.produce_template import INPUT_LETTERS
from logbrook.cli.records import ESCAPE_FORMS
from logbrook.client import Client
from logbrook.client.offset_specs import Earliest, LogBounds
from logbrook.client.partition_requests import PartitionRequests
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.batch import Codec, iter_headers
from logbrook.records.record import RawRecord
from tests.unit.cli.invocation import SECONDS_MAX
from tests.unit.cli.shell import Shell


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
    by_partition: dict[int, list[RawRecord]] = {}
    with Client(broker.bootstrap_servers) as client:
        positions = LogBounds(
            PartitionRequests(client), [TopicPartition(topic, number) for number in client.partitions(topic)]
        )
        with RecordsReader(client, positions.resolve(Earliest()), ends=positions.ends) as reader:
            while not reader.is_done:
                for run in reader.read():
                    by_partition.setdefault(run.partition.partition, []).extend(run.records)
    return by_partition


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for records in read(broker, topic).values() for record in records]


def test_lines_become_records_even_without_a_final_line_end(shell: Shell, broker: Broker, topic: str) -> None:
    done = shell.run("produce", topic, stdin="one\n\nthree \ttabbed\r\nfour")
    assert (done.code, done.out, done.err) == (0, "", f"4 records written to {topic}\n")
    assert values(broker, topic) == [b"one", b"", b"three \ttabbed\r", b"four"]


def test_empty_input_writes_no_record(shell: Shell, broker: Broker, topic: str) -> None:
    assert shell.run("produce", topic).err == f"0 records written to {topic}\n"
    assert values(broker, topic) == []


def test_keys_are_partitioned_as_by_the_java_client(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", topic, "-K", ": ", stdin="21: a\nfoobar: b\n: c\n21: d: e\n")
    by_partition = read(broker, topic)
    places = {
        (record.key, record.value): partition for partition, records in by_partition.items() for record in records
    }
    # By Kafka's own UtilsTest: murmur2("21") is -973932308, murmur2("foobar") -790332482, murmur2("") 275646681.
    assert places == {
        (b"21", b"a"): (-973932308 & 0x7FFFFFFF) % 4,
        (b"21", b"d: e"): (-973932308 & 0x7FFFFFFF) % 4,
        (b"foobar", b"b"): (-790332482 & 0x7FFFFFFF) % 4,
        (b"", b"c"): 275646681 % 4,
    }


def test_a_line_without_the_separator_stops_it_with_its_number(shell: Shell, broker: Broker, topic: str) -> None:
    message = shell.refused("produce", topic, "-K", ":", stdin="a:1\nb:2\nc\nd:4\n")
    assert message == f"line 3: it has no key separator ':'; 2 records written to {topic} before it"
    assert sorted(values(broker, topic), key=str) == [b"1", b"2"]


def test_one_key_one_partition_and_headers_for_all(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", topic, "-k", "k", "-p", "3", "-H", "a=1", "-H", "b=", "-Z", stdin="x\n\n")
    (records,) = [read(broker, topic)[3]]
    assert [(record.key, record.value, record.headers) for record in records] == [
        (b"k", b"x", (("a", b"1"), ("b", b""))),
        (b"k", None, (("a", b"1"), ("b", b""))),
    ]


def test_json_lines_set_every_field_of_a_record(shell: Shell, broker: Broker, topic: str) -> None:
    lines = [
        {"key": "k", "value": "é", "headers": {"h": "1"}, "partition": 2, "timestamp": 1234},
        {"key": "AP8=", "key_encoding": "base64", "partition": 2, "timestamp": "1970-01-01T00:00:02Z"},
        {"value": {"nested": [1]}, "partition": 2, "timestamp": 3, "headers": [{"key": "h", "value": None}]},
    ]
    report = shell.json("produce", topic, stdin="\n\n".join(json.dumps(line) for line in lines))
    assert report == {"topic": topic, "records": 3}
    assert [(record.timestamp, record.key, record.value, record.headers) for record in read(broker, topic)[2]] == [
        (1234, b"k", "é".encode(), (("h", b"1"),)),
        (2000, b"\x00\xff", None, ()),
        (3, None, b'{"nested": [1]}', (("h", None),)),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "it is not JSON: Expecting property name"),
        ("[1]", 'it is not a JSON object such as {"key": "k", "value": "v"}'),
        ('{"partition": "1"}', "its partition is '1', but must be a number"),
        ('{"partition": 9}', "partition 9 does not exist"),
        ('{"timestamp": "soon"}', "its timestamp is 'soon'"),
        ('{"timestamp": true}', "its timestamp is True"),
        ('{"value": "!", "value_encoding": "base64"}', "its value is not base64"),
        ('{"value": "!", "value_encoding": "rot13"}', "its value_encoding is 'rot13'"),
        ('{"headers": [1]}', "its headers must be"),
        ('{"key": "\\ud800"}', "its key has an unpaired surrogate"),
    ],
)
def test_invalid_json_is_reported_with_its_line(shell: Shell, topic: str, line: str, sentence: str) -> None:
    assert shell.refused("produce", topic, "--json", stdin=f"{{}}\n{line}\n").startswith(f"line 2: {sentence}")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"valeu": "a"}', "it has an unknown field 'valeu' (did you mean 'value'?)"),
        ('{"Key": "a"}', "it has an unknown field 'Key' (did you mean 'key'?)"),
        ('{"payload": "a"}', "it has an unknown field 'payload' (did you mean 'value'?)"),
        ('{"colour": 1}', "it has an unknown field 'colour' (the fields are key, value, headers, "),
        (
            '{"headers": [{"key": "h", "vlaue": "x"}]}',
            "its header has an unknown field 'vlaue' (did you mean 'value'?)",
        ),
    ],
)
def test_an_unknown_field_is_refused_before_anything_is_written(
    shell: Shell, broker: Broker, topic: str, line: str, sentence: str
) -> None:
    # More lines than are read at once.
    lines = '{"value": "a"}\n\n' * 20_000 + line
    message = shell.refused("produce", topic, "--json", stdin=lines)
    assert message.startswith(f"line 40001: {sentence}")
    assert message.endswith(f"; 0 records written to {topic} before it")
    assert values(broker, topic) == []


def test_an_unknown_field_in_a_pipe_is_refused_before_the_lines_read_with_it_are_written(
    shell: Shell, broker: Broker, topic: str
) -> None:
    with shell.start("produce", topic, "--json") as producing:
        out, err = producing.communicate(b'{"value": "a"}\n{"valeu": "b"}\n', timeout=SECONDS_MAX)
    assert (producing.returncode, out) == (1, b"")
    assert err.decode().startswith("error: line 2: it has an unknown field 'valeu' (did you mean 'value'?); 0 records")
    assert values(broker, topic) == []


def test_produce_accepts_the_json_output_of_consume(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", topic, "-k", "k", "-H", "h=1", stdin=b"a\n\xff\n")
    shell.ok("produce", topic, "--json", stdin=shell.ok("consume", topic, "--json"))
    assert values(broker, topic) == [b"a", b"\xff"] * 2


@pytest.mark.parametrize(
    ("template", "line"),
    [
        (r"%k\t%v\n", "key\tthe\tvalue"),
        ("%k,%v", "key,the\tvalue"),
        ("<%p|%T|%k> %s;", "<2|5000|key> the\tvalue;"),
        ("%d %p %k %v", "1970-01-01T00:00:05Z 2 key the\tvalue"),
    ],
)
def test_a_template_reads_the_fields_of_a_line(
    shell: Shell, broker: Broker, topic: str, template: str, line: str
) -> None:
    shell.ok("produce", topic, "-F", template, stdin=f"{line}\n")
    ((partition, (record,)),) = read(broker, topic).items()
    assert (record.key, record.value) == (b"key", b"the\tvalue")
    if "%p" in template:
        assert (partition, record.timestamp) == (2, 5000)


def test_a_template_reads_headers_and_takes_the_key_of_an_option(shell: Shell, broker: Broker, topic: str) -> None:
    arguments = ("-F", "%h %v", "-k", "same", "-H", "all=1", "-p", "0", "-Z")
    shell.ok("produce", topic, *arguments, stdin="a=1,b= x\n \n")
    assert [(record.key, record.value, record.headers) for record in read(broker, topic)[0]] == [
        (b"same", b"x", (("all", b"1"), ("a", b"1"), ("b", b""))),
        (b"same", None, (("all", b"1"),)),
    ]


def test_the_output_of_a_template_can_be_produced_with_it(shell: Shell, broker: Broker, topic: str) -> None:
    broker.create_topic(f"{topic}-again", 4)
    shell.ok("produce", topic, "-K", ":", "-H", "h=1", stdin="a:1\nb:2\n:3\n")
    template = r"%p\x1f%T\x1f%h\x1f%k\x1f%v\n"
    printed = shell.ok("consume", topic, "-F", template)
    shell.ok("produce", f"{topic}-again", "-F", template, stdin=printed)
    assert sorted(shell.ok("consume", f"{topic}-again", "-F", template).splitlines()) == sorted(printed.splitlines())


@pytest.mark.parametrize(
    ("template", "line", "sentence"),
    [
        ("%k,%v", "no comma", "it has no ',' after %k"),
        ("<%v>", "v>", "it does not begin with '<'"),
        ("<%v>", "<v", "it does not end with '>'"),
        ("%p %v", "x v", "its partition is 'x', but must be a number from 0 on"),
        ("%p %v", "9 v", "partition 9 does not exist"),
        ("%T %v", "-1 v", "its timestamp is '-1', but must be a number from 0 on"),
        ("%d %v", "noon v", "its timestamp is 'noon', but must be a time such as 2026-01-31T12:00Z"),
        ("%h %v", "a v", "its header 'a' is not name=value"),
    ],
)
def test_a_line_that_does_not_match_the_template_is_reported(
    shell: Shell, topic: str, template: str, line: str, sentence: str
) -> None:
    message = shell.refused("produce", topic, "-F", template, stdin=f"{line}\n")
    assert message.startswith(f"line 1: {sentence}")


def test_another_delimiter_separates_records(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", topic, "-p", "0", "-D", r"\0", "-K", r"\t", stdin=b"a\t1\n\0b\t2\0")
    shell.ok("produce", topic, "-p", "0", "-D", "--", stdin=b"3--4")
    assert [(record.key, record.value) for record in read(broker, topic)[0]] == [
        (b"a", b"1\n"),
        (b"b", b"2"),
        (None, b"3"),
        (None, b"4"),
    ]


def test_whole_files_are_one_record_each(shell: Shell, broker: Broker, topic: str, tmp_path: Path) -> None:
    contents = [b"first\nfile\n", b"", b"\x00\xff"]
    paths = [tmp_path / f"{number}.bin" for number in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    done = shell.run("produce", topic, *map(str, paths), "-p", "1", "--whole", "-k", "k")
    assert (done.code, done.err) == (0, f"3 records written to {topic}\n")
    shell.ok("produce", topic, "-p", "1", "--whole", stdin="all\nof it")
    assert [record.value for record in read(broker, topic)[1]] == [*contents, b"all\nof it"]


def test_lines_of_several_files_are_written_in_order(shell: Shell, broker: Broker, topic: str, tmp_path: Path) -> None:
    for name, text in (("one", "a:1\nb:2\n"), ("two", "c:3\nbad\n")):
        (tmp_path / name).write_text(text)
    first, second = str(tmp_path / "one"), str(tmp_path / "two")
    message = shell.refused("produce", topic, "-p", "0", "-K", ":", "-f", first, "-f", second)
    assert message == f"{second}, line 2: it has no key separator ':'; 3 records written to {topic} before it"
    message = shell.refused("produce", topic, "-p", "0", "-f", first, "-f", f"{second}-is-missing")
    assert message == f"{second}-is-missing cannot be read: No such file or directory"
    assert values(broker, topic) == [b"1", b"2", b"3"], "a missing file prevents all writes"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(shell: Shell, broker: Broker, topic: str, codec: str) -> None:
    shell.ok("produce", topic, "-p", "0", "-z", codec, stdin="same\n" * 1000)
    with Client(broker.bootstrap_servers) as client:
        headers = [header for _, header in iter_headers(client.fetch(topic, 0, Offset(0)).records)]
    assert {header.codec for header in headers} == {Codec[codec.upper()]}
    assert values(broker, topic) == [b"same"] * 1000


def test_with_all_acks_the_producer_is_idempotent_and_with_fewer_it_is_not(
    shell: Shell, broker: Broker, topic: str
) -> None:
    for acks in ("all", "1", "0"):
        shell.ok("produce", topic, "-p", "0", "--acks", acks, stdin=f"{acks}\n")
    with Client(broker.bootstrap_servers) as client:
        # The last was sent and not answered, so it may still be on its way.
        headers = [header for _, header in iter_headers(client.fetch(topic, 0, Offset(0)).records)]
    assert [header.producer_id >= 0 for header in headers][:2] == [True, False]


def test_a_large_file_is_written_completely(shell: Shell, broker: Broker, topic: str, tmp_path: Path) -> None:
    lines = [b"%07d %s" % (number, b"x" * (number % 90)) for number in range(20_000)]
    lines[777] = b"long " * 100_000
    file = tmp_path / "lines.txt"
    file.write_bytes(b"\n".join(lines) + b"\n")
    assert shell.run("produce", topic, "-f", str(file)).err == f"20,000 records written to {topic}\n"
    by_partition = read(broker, topic)
    assert len(by_partition) > 1, "lines without a key are spread"
    assert sorted(record.value or b"" for records in by_partition.values() for record in records) == sorted(lines)
    for records in by_partition.values():
        numbered = [record.value or b"" for record in records if not (record.value or b"").startswith(b"long")]
        assert numbered == sorted(numbered), "within a partition they stay in order"


def test_a_file_on_a_terminal_has_a_progress_bar(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a line of the file, more or less like any other\n" * 50_000)
    code, seen = shell.on_terminal("produce", topic, "--file", str(file), width=80)
    assert code == 0
    assert "writing ━" in seen
    assert "/2.3 MiB" in seen
    assert all(len(line) <= 80 for frame in seen.splitlines() for line in frame.split("\r"))
    assert seen.splitlines()[-1].endswith(f"50,000 records written to {topic}")


def test_typed_lines_are_written_at_once(shell: Shell, broker: Broker, topic: str) -> None:
    with shell.start("produce", topic) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"first\nhalf of the second")
        producing.stdin.flush()
        with shell.start("consume", topic, "--follow", "-n", "1") as consuming:
            assert consuming.communicate(timeout=SECONDS_MAX)[0] == b"first\n"
        producing.send_signal(signal.SIGINT)
        _, err = producing.communicate(timeout=SECONDS_MAX)
        assert (producing.returncode, err.decode()) == (130, f"stopped; 1 record written to {topic}\n")


def test_sigterm_writes_the_lines_that_were_read(shell: Shell, broker: Broker, topic: str) -> None:
    with shell.start("produce", topic) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"first\n")
        producing.stdin.flush()
        with shell.start("consume", topic, "--follow", "-n", "1") as consuming:
            assert consuming.communicate(timeout=SECONDS_MAX)[0] == b"first\n"
        producing.send_signal(signal.SIGTERM)
        _, err = producing.communicate(timeout=SECONDS_MAX)
        assert (producing.returncode, err.decode()) == (143, f"stopped; 1 record written to {topic}\n")


def test_a_record_that_is_too_large_says_what_to_do(shell: Shell, topic: str) -> None:
    message = shell.refused("produce", topic, stdin=b"x" * 2_000_000)
    assert "a record is larger than the topic's max.message.bytes; raise it" in message


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p", "4"], "--partition: {topic} has 4 partitions, numbered from 0"),
        (["-H", "x"], "--header: 'x' is not NAME=VALUE"),
        (["-K", ""], "--key-separator: it is empty"),
        (["-K", ":", "-k", "x"], "--key-separator: it cannot be combined with --key"),
        (["-K", "\\q"], "--key-separator: it has an incomplete '\\\\'; it can have {escapes}"),
        (["-D", ""], "--delimiter: it is empty; --whole makes each file one record"),
        (["-D", "x", "--whole"], "--delimiter: it cannot be combined with --whole"),
        (
            ["--whole", "--json"],
            "--whole: the whole input is the value: leave out --json, --format and --key-separator",
        ),
        (["-F", "%k%v"], "--format: there is no text between %k and %v that separates them"),
        (["-F", "%v %s"], "--format: '%v %s' has the same field twice"),
        (["-F", "%k\\n%v"], "--format: it has '\\n', which separates records; --delimiter chooses another one"),
        (["-F", "%o %v"], "--format: the template has %o, which is none of {letters}"),
        (["-F", "jsn"], "--format: 'jsn' is not raw or json, and not a template with {letters}"),
        (["-F", "%k %v", "-k", "x"], "--key: the template has %k, which is the key"),
        (["-F", "%v", "-K", ":"], "--key-separator: it cannot be combined with a template, which has %k"),
        (["-F", "%v", "--json"], "--format: it cannot be combined with --json, which is a format"),
        (
            ["--json", "-k", "x"],
            "--json: keys and headers are in the JSON objects: leave out --key, --key-separator and --header",
        ),
    ],
)
def test_wrong_usage_ends_with_2(shell: Shell, topic: str, arguments: list[str], sentence: str) -> None:
    expected = sentence.format(topic=topic, letters=INPUT_LETTERS, escapes=ESCAPE_FORMS)
    assert shell.refused("produce", topic, *arguments, code=2) == expected


def test_a_missing_topic_or_file_is_reported(shell: Shell, topic: str, tmp_path: Path) -> None:
    assert shell.refused("produce", "nope").startswith("looking up topic nope: it does not exist")
    assert shell.refused("produce", topic, "-f", "nope.txt") == "nope.txt cannot be read: No such file or directory"
    assert shell.refused("produce", topic, "-f", str(tmp_path)) == f"{tmp_path} is a directory"
