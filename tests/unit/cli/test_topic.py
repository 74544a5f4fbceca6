"""`logbrook topic`, against a real broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from tests.unit.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap_servers, tmp_path)


def test_a_topic_is_made_listed_and_deleted(shell: Shell) -> None:
    assert shell.ok("topic", "create", "life", "-p", "2") == "created life\n"
    listed = {one["name"]: one for one in shell.json("topic", "list")}
    assert listed["life"] == {
        "name": "life",
        "partitions": 2,
        "replicas": 1,
        "offsets": 0,
        "size_bytes": 0,
        "internal": False,
    }
    assert shell.ok("topic", "delete", "life", "--yes") == "deleted life\n"
    assert "life" not in {one["name"] for one in shell.json("topic", "list")}


def test_a_piped_list_is_aligned_text(tmp_path: Path) -> None:
    with Broker({"a-topic-with-a-long-name": 12, "b": 1}) as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        assert shell.ok("topic", "list").splitlines() == [
            "NAME                      PARTITIONS  REPLICAS  OFFSETS  SIZE",
            "a-topic-with-a-long-name          12         1        0   0 B",
            "b                                  1         1        0   0 B",
        ]


def test_a_broker_without_topics_says_how_to_make_one(tmp_path: Path) -> None:
    with Broker() as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        done = shell.run("topic", "list")
        assert (done.code, done.err) == (0, "there are no topics; `logbrook topic create NAME` makes one\n")
        assert shell.json("topic", "list") == []


def test_a_description_has_partitions_and_what_is_not_the_default(shell: Shell) -> None:
    shell.ok("topic", "create", "told", "-p", "2", "-c", "retention.ms=1234567")
    shell.ok("produce", "told", "-p", "1", stdin="one\ntwo\n")
    told = shell.json("topic", "describe", "told")
    assert len(told.pop("id")) == 22
    assert told["partitions"].pop()["size_bytes"] > 0
    assert told == {
        "name": "told",
        "internal": False,
        "partitions": [
            {
                "partition": 0,
                "leader": 1,
                "leader_epoch": 0,
                "replicas": [1],
                "in_sync_replicas": [1],
                "start_offset": 0,
                "end_offset": 0,
                "size_bytes": 0,
            }
        ],
        "settings": [
            {
                "name": "retention.ms",
                "value": "1234567",
                "source": "topic",
                "default": "604800000",
                "read_only": False,
                "sensitive": False,
            }
        ],
    }
    text = shell.ok("topic", "describe", "told")
    assert "Settings that are not the default\nSETTING       VALUE    SET FOR  ELSE\n" in text
    assert "PARTITION  LEADER  REPLICAS  IN SYNC  START  END  SIZE" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_value_is_cut_off_on_a_narrow_terminal(shell: Shell, width: int) -> None:
    name = "a-topic-whose-name-is-longer-than-the-narrowest-of-these-terminals"
    shell.ok("topic", "create", name, "--if-not-exists")
    code, seen = shell.on_terminal("topic", "list", width=width)
    assert code == 0
    assert all(len(line) <= width for line in seen.splitlines())
    folded = "".join(line.split(" ")[0] for line in seen.splitlines())
    assert name in folded
    assert "…" not in seen


def test_settings_are_changed_and_go_back(shell: Shell) -> None:
    shell.ok("topic", "create", "changed", "-c", "retention.ms=1000")
    done = shell.ok("topic", "config", "changed", "segment.bytes=1048576", "--unset", "retention.ms")
    assert done == "changed segment.bytes, retention.ms of changed\n"
    found = {one["name"]: (one["value"], one["source"]) for one in shell.json("topic", "config", "changed")}
    assert found["segment.bytes"] == ("1048576", "topic")
    assert found["retention.ms"] == ("604800000", "default")
    assert "retention.ms" in shell.ok("topic", "config", "changed")


def test_partitions_are_added_by_number_or_up_to_one(shell: Shell) -> None:
    shell.ok("topic", "create", "grown", "-p", "1")
    assert shell.ok("topic", "add-partitions", "grown", "-n", "2") == "grown has 3 partitions now, and had 1\n"
    assert shell.ok("topic", "add-partitions", "grown", "--to", "4") == "grown has 4 partitions now, and had 3\n"
    assert "adding partitions to topic grown" in shell.refused("topic", "add-partitions", "grown", "--to", "2")
    assert shell.refused("topic", "add-partitions", "grown", code=2).startswith("--num / --to: say how many")


def test_trimming_moves_the_start_and_says_where_it_is(shell: Shell) -> None:
    shell.ok("topic", "create", "trimmed", "-p", "2")
    shell.ok("produce", "trimmed", "-p", "0", stdin="a\nb\nc\n")
    told = shell.json("topic", "trim", "trimmed", "--to", "2", "--yes")
    assert told == [{"partition": 0, "before": 0, "after": 2}, {"partition": 1, "before": 0, "after": 0}]
    assert shell.ok("consume", "trimmed") == "c\n"
    assert shell.json("topic", "trim", "trimmed", "--to", "end", "-p", "0", "-y") == [
        {"partition": 0, "before": 2, "after": 3}
    ]
    assert "has no partition 7" in shell.refused("topic", "trim", "trimmed", "--to", "1", "-p", "7", code=2)


def test_nothing_is_destroyed_unasked(shell: Shell) -> None:
    shell.ok("topic", "create", "kept")
    shell.ok("produce", "kept", stdin="a\n")
    assert "give --yes" in shell.refused("topic", "delete", "kept", code=2)
    assert "give --yes" in shell.refused("topic", "trim", "kept", "--to", "end", code=2)
    code, seen = shell.on_terminal("topic", "delete", "kept", typed="n\n")
    assert code == 1
    assert "Delete kept with all records? [y/N]" in seen
    assert "nothing was changed" in seen
    assert shell.ok("consume", "kept") == "a\n"
    code, seen = shell.on_terminal("topic", "delete", "kept", typed="y\n")
    assert code == 0
    assert "deleted kept" in seen


def test_one_unknown_name_keeps_all_from_being_deleted(shell: Shell) -> None:
    shell.ok("topic", "create", "stays")
    told = shell.refused("topic", "delete", "stays", "is-not-there", "--yes")
    assert told == "there is no topic is-not-there, and none was deleted; `logbrook topic list` shows what there is"
    assert shell.json("topic", "describe", "stays")["name"] == "stays"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["create", "bad name"], "creating topic bad name: topic name 'bad name' has characters other than ASCII "),
        (["create", "x", "-c", "nonsense=1"], "creating topic x: nonsense: there is no such setting"),
        (["create", "x", "-r", "3"], "creating topic x: "),
        (["describe", "nope"], "looking up topic nope: it is not there; `logbrook topic list` shows what is"),
        (["config", "nope", "retention.ms=1"], "changing the settings of topic nope: it is not there"),
        (["trim", "nope", "--to", "1"], "looking up topic nope: it is not there"),
    ],
)
def test_what_the_broker_refuses_is_told_in_a_sentence(shell: Shell, arguments: list[str], sentence: str) -> None:
    assert shell.refused("topic", *arguments).startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["create", "x", "-c", "retention.ms"], "--config: 'retention.ms' is not KEY=VALUE"),
        (["config", "x", "a=1", "--unset", "a"], "--unset: a cannot be set and unset at once"),
        (["trim", "x", "--to", "yesterday"], "--to: 'yesterday' is none of: start, end, an offset"),
        (["trim", "x", "--to", "9" * 20], f"--to: {'9' * 20} is larger than any offset"),
        (["list", "-b", "nowhere"], "--bootstrap: 'nowhere' is not HOST:PORT"),
    ],
)
def test_wrong_usage_ends_with_2(shell: Shell, arguments: list[str], sentence: str) -> None:
    assert shell.refused("topic", *arguments, code=2).startswith(sentence)


def test_a_topic_that_is_there_is_an_error_unless_that_is_fine(shell: Shell) -> None:
    shell.ok("topic", "create", "twice")
    told = shell.refused("topic", "create", "twice")
    assert told == "creating topic twice: it is there already; `logbrook topic describe` shows it"
    assert shell.ok("topic", "create", "twice", "--if-not-exists") == "twice is there already\n"


def test_names_of_topics_are_completed(shell: Shell) -> None:
    shell.ok("topic", "create", "completed-one", "completed-two")
    words = {"COMP_WORDS": "logbrook topic describe completed", "COMP_CWORD": "3"}
    shell.environment |= words | {"_LOGBROOK_COMPLETE": "complete_bash"}
    assert shell.run().out.split() == ["completed-one", "completed-two"]
    shell.environment["LOGBROOK_BOOTSTRAP"] = "127.0.0.1:1"
    done = shell.run()
    assert (done.out.strip(), done.err) == ("", "")


def test_a_command_for_a_script_loads_no_rich(shell: Shell) -> None:
    shell.environment["PYTHONPROFILEIMPORTTIME"] = "1"
    imported = shell.run("topic", "list", "--json").err
    loaded = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert "logbrook.client.admin" in loaded
    assert not loaded & {"rich", "rich.console", "asyncio", "numpy", "pyarrow", "logbrook.server", "logbrook.spark"}
