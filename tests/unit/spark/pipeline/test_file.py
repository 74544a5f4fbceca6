"""A pipeline's file: what it means, and that all that is wrong with it is told at once."""

from pathlib import Path

import pytest

from logbrook.spark.pipeline import file as file_module
from logbrook.spark.pipeline.errors import PipelineRefusedError, exit_code_of
from logbrook.spark.pipeline.file import read_pipeline
from logbrook.spark.pipeline.spec import Pipeline, RowFormat, Sink, Source, View, Watermark

SMALL = """\
name = "orders"
bootstrap_servers = "127.0.0.1:9092"
[sources.orders]
topic = "orders"
schema = "id BIGINT"
[sinks.copy]
view = "orders"
topic = "copy"
"""


def read(tmp_path: Path, text: str, **options: str) -> Pipeline:
    path = tmp_path / "p.toml"
    path.write_text(text)
    return read_pipeline(str(path), **options)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(PipelineRefusedError) as refused:
        read(tmp_path, text)
    assert exit_code_of(refused.value) == 2
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in refused.value.problems]


def documented() -> str:
    """The example of the module's docstring."""
    lines = (file_module.__doc__ or "").splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith("    ") or not line)


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    pipeline = read(tmp_path, SMALL)
    assert pipeline == Pipeline(
        path=f"{tmp_path}/p.toml",
        name="orders",
        bootstrap_servers="127.0.0.1:9092",
        checkpoint=f"{tmp_path}/checkpoint",
        trigger_ms=10_000,
        master=None,
        conf={},
        sources=(Source("orders", 3, ("subscribe", "orders"), RowFormat.JSON, "id BIGINT", "earliest", None, (), {}),),
        views=(),
        sinks=(Sink("copy", 6, "orders", False, "copy", "append", None, {}),),
        dead_letters=None,
        reports="__logbrook_pipelines",
    )
    assert pipeline.group_of("copy") == "orders-copy"


def test_the_documented_file_is_read(tmp_path: Path) -> None:
    pipeline = read(tmp_path, documented())
    assert pipeline.master == "local[4]"
    assert pipeline.conf == {"spark.sql.shuffle.partitions": "4"}
    assert pipeline.dead_letters == "orders-dead"
    (source,) = pipeline.sources
    assert source.watermark == Watermark("at", "10 minutes")
    assert source.unique == ("id",)
    assert source.options == {"maxOffsetsPerTrigger": "100000"}
    (view,) = pipeline.views
    assert (view.name, view.sql[:6]) == ("per_minute", "SELECT")
    totals, archive = pipeline.sinks
    assert (totals.key, totals.mode, totals.options) == ("minute", "update", {"compression": "zstd"})
    assert (archive.is_table, archive.target) == (True, f"{tmp_path}/tables/orders")
    assert archive.options == {"table.format": "delta", "partition.by": "day"}


def test_reports_go_elsewhere_or_nowhere(tmp_path: Path) -> None:
    assert read(tmp_path, 'reports = "told"\n' + SMALL).reports == "told"
    assert read(tmp_path, "reports = false\n" + SMALL).reports is None
    assert problems(tmp_path, "reports = true\n" + SMALL) == [
        "p.toml:1: reports = true, but it must be a text that is not empty"
    ]


def test_the_command_line_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = read(tmp_path, SMALL, bootstrap_servers="other:1", checkpoint="again")
    assert (pipeline.bootstrap_servers, pipeline.checkpoint) == ("other:1", f"{tmp_path}/again")
    without = SMALL.replace('bootstrap_servers = "127.0.0.1:9092"\n', "")
    assert read(tmp_path, without, bootstrap_servers="other:1").bootstrap_servers == "other:1"


@pytest.mark.parametrize(("text", "trigger_ms"), [("once", None), ("500ms", 500), ("5 minutes", 300_000)])
def test_a_trigger_is_a_duration_or_once(tmp_path: Path, text: str, trigger_ms: int | None) -> None:
    assert read(tmp_path, f'trigger = "{text}"\n{SMALL}').trigger_ms == trigger_ms


def test_a_uri_is_left_as_it_is(tmp_path: Path) -> None:
    assert read(tmp_path, f'checkpoint = "hdfs://host/x"\n{SMALL}').checkpoint == "hdfs://host/x"


def test_settings_of_spark_may_be_written_with_dots_or_in_quotes(tmp_path: Path) -> None:
    text = f'{SMALL}[spark]\nspark.ui.enabled = true\n"spark.executor.memory" = "2g"\nspark.sql.ansi.enabled = false\n'
    conf = {"spark.ui.enabled": "true", "spark.sql.ansi.enabled": "false", "spark.executor.memory": "2g"}
    assert read(tmp_path, text).conf == conf


def test_topics_may_be_several_or_a_pattern(tmp_path: Path) -> None:
    several = read(tmp_path, SMALL.replace('topic = "orders"', 'topics = ["a", "b"]'))
    assert several.sources[0].subscription == ("subscribe", "a,b")
    pattern = read(tmp_path, SMALL.replace('topic = "orders"', 'pattern = "o.*"'))
    assert pattern.sources[0].subscription == ("subscribePattern", "o.*")


def test_all_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    text = """\
name = "or ders"
trigger = "soon"
[sources.orders]
topik = "orders"
topics = ["a"]
pattern = "b"
unique = ["id"]
format = "xml"
[sources.text]
topic = "t"
format = "string"
schema = "x INT"
watermark = { column = "at" }
[[views]]
name = "v1"
sql = "SELECT 1"
[[views]]
nam = "v2"
sql = "SELECT 2"
[[views]]
name = "V1"
sql = 3
[sinks.totals]
view = "v"
topic = "x"
table = "y"
[sinks.t2]
view = "v1"
table = "t"
key = "x"
mode = "update"
[sinks.t3]
view = "v1"
topic = "t"
format = "delta"
mode = "complete"
[sinks.t4]
[dead_letters]
[spark]
foo = 1
[extra]
"""
    assert problems(tmp_path, text) == [
        'p.toml:1: name = "or ders", but it must be letters, digits, dots, dashes and underscores',
        'p.toml:1: bootstrap_servers is missing; write for example bootstrap_servers = "127.0.0.1:9092"',
        'p.toml:2: trigger = "soon", but it must be once, or a duration such as "10s" or "5 minutes"',
        'p.toml:3: sources.orders.schema is missing; JSON needs one, such as "id BIGINT, at TIMESTAMP"',
        "p.toml:4: sources.orders.topik is not known; did you mean topic?",
        "p.toml:6: sources.orders has both topics and pattern; one of them says what is read",
        "p.toml:7: sources.orders.unique needs a watermark, which says for how long rows are remembered",
        'p.toml:8: sources.orders.format = "xml", but it must be json, string or bytes',
        "p.toml:12: sources.text.schema is for the format json, and this is string",
        'p.toml:13: sources.text.watermark.delay is missing; write for example delay = "10 minutes"',
        'p.toml:17: views.name is missing; write for example name = "per_minute"',
        "p.toml:18: views.nam is not known; did you mean name?",
        "p.toml:20: there are two sources or views named V1; the names must differ",
        "p.toml:22: views.sql = 3, but it must be a text that is not empty",
        'p.toml:24: sinks.totals.view = "v", but there is no such source or view; did you mean v1?',
        "p.toml:26: sinks.totals has both a topic and a table; make two sinks of it",
        "p.toml:30: sinks.t2.key is for a topic, and this sink has a table",
        'p.toml:31: sinks.t2.mode = "update", but it must be append: '
        "a table keeps each row that is written, and update writes a row again",
        "p.toml:35: sinks.t3.format is for a table, and this sink has a topic",
        'p.toml:36: sinks.t3.mode = "complete", but it must be append or update',
        'p.toml:37: sinks.t4.view is missing; write for example view = "orders"',
        "p.toml:37: sinks.t4 has neither a topic nor a table; write one of them",
        'p.toml:38: dead_letters.topic is missing; write for example topic = "orders-dead"',
        "p.toml:39: spark.foo is not known; there are master and what begins with spark.",
        "p.toml:41: extra is not known; there are name, bootstrap_servers, checkpoint, trigger, reports, spark, "
        "sources, views, sinks and dead_letters",
    ]


def test_a_pipeline_has_sources_and_sinks(tmp_path: Path) -> None:
    told = problems(tmp_path, 'name = "x"\nbootstrap_servers = "h:1"\n')
    assert told == [
        "p.toml:1: there is no source; a table such as [sources.orders] says what is read",
        "p.toml:1: there is no sink; a table such as [sinks.totals] says where rows go",
    ]


def test_a_table_that_is_not_one_is_refused(tmp_path: Path) -> None:
    told = problems(tmp_path, f"views = 1\n{SMALL.replace('[sinks.copy]', '[sinks]')}")
    assert told[0] == "p.toml:1: views = 1, but it must be tables, each under a line [[views]]"
    assert told[1:] == [
        "p.toml:1: there is no sink; a table such as [sinks.totals] says where rows go",
        'p.toml:8: sinks.view = "orders", but it must be the table [sinks.view]',
        'p.toml:9: sinks.topic = "copy", but it must be the table [sinks.topic]',
    ]


def test_names_are_such_as_sql_takes(tmp_path: Path) -> None:
    told = problems(tmp_path, SMALL.replace("[sinks.copy]", '[sinks."a-b"]'))
    assert told == ["p.toml:6: [sinks.a-b] must be named with letters, digits and underscores"]


@pytest.mark.parametrize("read", ['topic = "orders"', 'topics = ["a", "orders"]', 'pattern = "ord.*"'])
def test_dead_letters_are_not_read_again(tmp_path: Path, read: str) -> None:
    text = SMALL.replace('topic = "orders"', read)
    told = problems(tmp_path, f'{text}[dead_letters]\ntopic = "orders"\n')
    must_be = "a topic that is not read, because a dead letter would be one again"
    assert told == [f'p.toml:10: dead_letters.topic = "orders", but it must be {must_be}']


def test_views_in_one_line_are_read_too(tmp_path: Path) -> None:
    views = 'views = [{ name = "a", sql = "SELECT 1" }, { name = "b", sql = "SELECT 2" }]\n'
    assert read(tmp_path, views + SMALL).views == (View("a", 1, "SELECT 1"), View("b", 1, "SELECT 2"))


def test_what_is_not_toml_is_told_with_its_line(tmp_path: Path) -> None:
    assert problems(tmp_path, 'name = "x"\nb = = 1\n') == ["p.toml:2: this is not TOML: Invalid value"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineRefusedError, match=r"none\.toml: it cannot be read: No such file or directory"):
        read_pipeline(str(tmp_path / "none.toml"))
