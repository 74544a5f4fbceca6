"""`logbrook topic`, against a real broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from tests.unit.cli.invocation import SECONDS_MAX
from tests.unit.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap_servers, tmp_path)


def test_a_topic_is_created_listed_and_deleted(shell: Shell) -> None:
    assert shell.ok("topic", "create", "life", "-p", "2") == "created life\n"
    listed = {row["name"]: row for row in shell.json("topic", "list")}
    assert listed["life"] == {
        "name": "life",
        "partitions": 2,
        "replicas": 1,
        "offsets": 0,
        "size_bytes": 0,
        "internal": False,
    }
    assert shell.ok("topic", "delete", "life", "--yes") == "deleted life\n"
    assert "life" not in {row["name"] for row in shell.json("topic", "list")}


def test_a_piped_list_is_aligned_text(tmp_path: Path) -> None:
    with Broker({"a-topic-with-a-long-name": 12, "b": 1}) as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        assert shell.ok("topic", "list").splitlines() == [
            "NAME                      PARTITIONS  REPLICAS  OFFSETS  SIZE",
            "a-topic-with-a-long-name          12         1        0   0 B",
            "b                                  1         1        0   0 B",
        ]


def test_an_empty_topic_list_says_how_to_create_one(tmp_path: Path) -> None:
    with Broker() as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        done = shell.run("topic", "list")
        assert (done.code, done.err) == (0, "there are no topics; `logbrook topic create NAME` creates one\n")
        assert shell.json("topic", "list") == []


def test_a_description_has_partitions_and_changed_settings(shell: Shell) -> None:
    shell.ok("topic", "create", "told", "-p", "2", "-c", "retention.ms=1234567")
    shell.ok("produce", "told", "-p", "1", stdin="one\ntwo\n")
    message = shell.json("topic", "describe", "told")
    assert len(message.pop("id")) == 22
    assert message["partitions"].pop()["size_bytes"] > 0
    assert message == {
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
    assert "Settings that are not the default\nSETTING       VALUE    SET FOR  OTHERWISE\n" in text
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


def test_settings_are_changed_and_unset(shell: Shell) -> None:
    shell.ok("topic", "create", "changed", "-c", "retention.ms=1000")
    done = shell.ok("topic", "config", "changed", "segment.bytes=1048576", "--unset", "retention.ms")
    assert done == "changed segment.bytes, retention.ms of changed\n"
    settings = {row["name"]: (row["value"], row["source"]) for row in shell.json("topic", "config", "changed")}
    assert settings["segment.bytes"] == ("1048576", "topic")
    assert settings["retention.ms"] == ("604800000", "default")
    assert "retention.ms" in shell.ok("topic", "config", "changed")


def test_durations_and_sizes_are_written_in_kafkas_notation(shell: Shell) -> None:
    shell.ok("topic", "create", "units", "-c", "retention.ms=7d", "-c", "segment.bytes=64MiB")
    shell.ok(
        "topic", "config", "units", "retention.bytes=unlimited", "delete.retention.ms=90s", "file.delete.delay.ms=7"
    )
    settings = {row["name"]: row["value"] for row in shell.json("topic", "describe", "units")["settings"]}
    assert settings == {
        "delete.retention.ms": "90000",
        "file.delete.delay.ms": "7",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "67108864",
    }


def test_an_unknown_setting_is_not_unset(shell: Shell) -> None:
    shell.ok("topic", "create", "unset", "-c", "retention.ms=1000")
    message = shell.refused("topic", "config", "unset", "segment.bytes=1048576", "--unset", "retention.msec")
    assert message == "topic unset has no setting 'retention.msec'; did you mean retention.ms?"
    assert [row["name"] for row in shell.json("topic", "describe", "unset")["settings"]] == ["retention.ms"]
    assert "`logbrook topic config unset` lists them" in shell.refused("topic", "config", "unset", "--unset", "zzz")


def test_partitions_are_added_by_count_or_up_to_a_total(shell: Shell) -> None:
    shell.ok("topic", "create", "grown", "-p", "1")
    assert shell.ok("topic", "add-partitions", "grown", "-n", "2") == "grown now has 3 partitions (before: 1)\n"
    assert shell.ok("topic", "add-partitions", "grown", "--to", "4") == "grown now has 4 partitions (before: 3)\n"
    assert "adding partitions to topic grown" in shell.refused("topic", "add-partitions", "grown", "--to", "2")
    assert shell.refused("topic", "add-partitions", "grown", code=2).startswith("--num / --to: give the number")


def test_trimming_moves_and_reports_the_log_start_offset(shell: Shell) -> None:
    shell.ok("topic", "create", "trimmed", "-p", "2")
    shell.ok("produce", "trimmed", "-p", "0", stdin="a\nb\nc\n")
    shell.ok("produce", "trimmed", "-p", "1", stdin="d\ne\n")
    message = shell.json("topic", "trim", "trimmed", "--to", "2", "--yes")
    assert message == [{"partition": 0, "before": 0, "after": 2}, {"partition": 1, "before": 0, "after": 2}]
    assert shell.ok("consume", "trimmed") == "c\n"
    assert shell.json("topic", "trim", "trimmed", "--to", "end", "-p", "0", "-y") == [
        {"partition": 0, "before": 2, "after": 3}
    ]
    assert "has no available partition 7" in shell.refused("topic", "trim", "trimmed", "--to", "1", "-p", "7", code=2)


def test_trimming_after_the_end_is_refused_and_names_the_end(shell: Shell) -> None:
    shell.ok("topic", "create", "too-far", "-p", "2")
    shell.ok("produce", "too-far", "-p", "0", stdin="a\nb\nc\n")
    shell.ok("produce", "too-far", "-p", "1", stdin="d\ne\n")
    both = "partition 0 ends at offset 3, partition 1 ends at offset 2;"
    for place, reason in {
        "3": "offset 3 is past the end of too-far: partition 1 ends at offset 2;",
        "4": f"offset 4 is past the end of too-far: {both}",
        "2999-01-01": f"2999-01-01 is in the future: {both}",
        "@32503680000000": f"@32503680000000 is in the future: {both}",
    }.items():
        message = shell.refused("topic", "trim", "too-far", "--to", place, "--yes", code=2)
        assert message.startswith(f"--to: {reason} nothing was deleted")
    assert sorted(shell.ok("consume", "too-far").split()) == ["a", "b", "c", "d", "e"]


def test_trimming_by_age_may_delete_all_records(shell: Shell) -> None:
    shell.ok("topic", "create", "aged")
    shell.ok("produce", "aged", "--json", stdin='{"value": "old", "timestamp": "2020-01-01T00:00Z"}\n')
    assert shell.json("topic", "trim", "aged", "--to", "-7d", "-y") == [{"partition": 0, "before": 0, "after": 1}]


def test_destructive_commands_need_confirmation(shell: Shell) -> None:
    shell.ok("topic", "create", "kept")
    shell.ok("produce", "kept", stdin="a\n")
    assert "give --yes" in shell.refused("topic", "delete", "kept", code=2)
    assert "give --yes" in shell.refused("topic", "trim", "kept", "--to", "end", code=2)
    code, seen = shell.on_terminal("topic", "delete", "kept", typed="n\n")
    assert code == 1
    assert "Delete kept, with all records? [y/N]" in seen
    assert "nothing was changed" in seen
    assert shell.ok("consume", "kept") == "a\n"
    code, seen = shell.on_terminal("topic", "delete", "kept", typed="y\n")
    assert code == 0
    assert "deleted kept" in seen


@pytest.fixture
def fleet(shell: Shell) -> list[str]:
    names = ["fleet-1", "fleet-2", "fleet-10", "not-fleet-1"]
    shell.ok("topic", "create", *names, "--if-not-exists")
    return names


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["fleet-*"], ["fleet-1", "fleet-10", "fleet-2"]),
        (["fleet-?", "not-*"], ["fleet-1", "fleet-2", "not-fleet-1"]),
        (["fleet-[2-9]", "not-fleet-1"], ["fleet-2", "not-fleet-1"]),
        (["^fleet-[0-9]$"], ["fleet-1", "fleet-2"]),
        (["^.*fleet-1"], ["fleet-1", "fleet-10", "not-fleet-1"]),
        (["__*"], []),
    ],
)
def test_patterns_choose_topics(shell: Shell, fleet: list[str], patterns: list[str], expected: list[str]) -> None:
    assert [row["name"] for row in shell.json("topic", "list", *patterns)] == expected


def test_a_pattern_without_a_match_is_reported(shell: Shell, fleet: list[str]) -> None:
    done = shell.run("topic", "list", "zzz*")
    assert (done.code, done.err) == (0, "no topic matches zzz*; `logbrook topic list` shows all\n")
    assert shell.refused("topic", "delete", "zzz*", "--yes") == (
        "no topic matches 'zzz*'; `logbrook topic list` shows the topics"
    )
    message = shell.refused("topic", "delete", "^(", "--yes", code=2)
    assert message.startswith("TOPIC...: '^(' is not a regular expression: ")


def test_the_confirmation_lists_what_a_pattern_matches(shell: Shell, fleet: list[str]) -> None:
    code, seen = shell.on_terminal("topic", "delete", "fleet-*", "fleet-1", typed="n\n")
    assert code == 1
    assert "Delete 3 topics: fleet-1, fleet-10, fleet-2, with all records? [y/N]" in seen
    assert shell.ok("topic", "delete", "^fleet-1", "--yes") == "deleted fleet-1\ndeleted fleet-10\n"
    assert [row["name"] for row in shell.json("topic", "list", "*fleet*")] == ["fleet-2", "not-fleet-1"]


def test_patterns_match_internal_topics_only_where_they_are_listed(tmp_path: Path) -> None:
    with Broker(["orders"]) as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        shell.ok("group", "reset", "g", "--to", "end", "--topic", "orders", "--execute")
        assert [row["name"] for row in shell.json("topic", "list", "_*", "--internal")] == ["__consumer_offsets"]
        assert shell.refused("topic", "delete", "_*", "--yes").startswith("no topic matches '_*'")


def test_an_unknown_name_prevents_every_deletion(shell: Shell) -> None:
    shell.ok("topic", "create", "stays")
    message = shell.refused("topic", "delete", "stays", "is-not-there", "--yes")
    assert message == "there is no topic is-not-there, and none was deleted; `logbrook topic list` shows the topics"
    assert shell.json("topic", "describe", "stays")["name"] == "stays"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["create", "bad name"], "creating topic bad name: topic name 'bad name' has characters other than ASCII "),
        (["create", "x", "-c", "nonsense=1"], "creating topic x: nonsense: there is no such setting"),
        (
            ["create", "x", "-c", "retention=1d"],
            "creating topic x: retention: there is no such setting; did you mean retention.ms?",
        ),
        (["create", "x", "-r", "3"], "creating topic x: "),
        (["describe", "nope"], "looking up topic nope: it does not exist; `logbrook topic list` shows the topics"),
        (["config", "nope", "retention.ms=1"], "changing the settings of topic nope: it does not exist"),
        (["trim", "nope", "--to", "1"], "looking up topic nope: it does not exist"),
    ],
)
def test_the_brokers_refusals_are_reported_in_one_sentence(shell: Shell, arguments: list[str], sentence: str) -> None:
    assert shell.refused("topic", *arguments).startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["create", "x", "-c", "retention.ms"], "--config: 'retention.ms' is not KEY=VALUE"),
        (["config", "x", "a=1", "--unset", "a"], "--unset: a cannot be set and unset at once"),
        (["trim", "x", "--to", "yesterday"], "--to: 'yesterday' is not a place; write start, end, an offset"),
        (["trim", "x", "--to", "9" * 20], f"--to: {'9' * 20} is larger than any offset"),
        (["list", "-b", "nowhere:x"], "--bootstrap: 'nowhere:x' is not HOST:PORT"),
        (["list", "-b", "nowhere:70000"], "--bootstrap: 'nowhere:70000' is not HOST:PORT"),
        (["list", "-b", ":9092"], "--bootstrap: ':9092' is not HOST:PORT"),
        (["create", "x", "-c", "retention.ms=1", "-c", "retention.ms=2"], "--config: retention.ms is given twice"),
        (
            ["config", "x", "retention.ms=7days"],
            "KEY=VALUE...: retention.ms=7days, but it must be a number of ms or a duration such as 500ms, 30s or 7d",
        ),
        (
            ["create", "x", "-c", "segment.bytes=64Mi"],
            "--config: segment.bytes=64Mi, but it must be a number of bytes or a size such as 64MiB or 1GiB",
        ),
    ],
)
def test_wrong_usage_ends_with_2(shell: Shell, arguments: list[str], sentence: str) -> None:
    assert shell.refused("topic", *arguments, code=2).startswith(sentence)


def test_an_existing_topic_is_an_error_without_if_not_exists(shell: Shell) -> None:
    shell.ok("topic", "create", "twice")
    message = shell.refused("topic", "create", "twice")
    assert message == "creating topic twice: it already exists; `logbrook topic describe` shows it"
    assert shell.ok("topic", "create", "twice", "--if-not-exists") == "twice already exists\n"


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
    with shell.start("topic", "list", "--json") as process:
        imported = process.communicate(timeout=SECONDS_MAX)[1].decode()
    loaded = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert "logbrook.client.admin" in loaded
    assert not loaded & {"rich", "rich.console", "asyncio", "numpy", "pyarrow", "logbrook.server", "logbrook.spark"}
