"""The file of a pipeline: its meaning, and that all errors are reported at once."""

from pathlib import Path

import pytest

from logbrook.spark.errors import InvalidPipelineError, exit_code_of
from logbrook.spark.pipeline import file as file_module
from logbrook.spark.pipeline.file import read_pipeline
from logbrook.spark.pipeline.spec import (
    MaintenanceSpec,
    PipelineSpec,
    RestartPolicy,
    RowFormat,
    SinkSpec,
    SourceSpec,
    StaticSourceSpec,
    ViewSpec,
    Watermark,
)

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


def read(tmp_path: Path, text: str, **options: str) -> PipelineSpec:
    path = tmp_path / "p.toml"
    path.write_text(text)
    return read_pipeline(str(path), **options)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InvalidPipelineError) as refused:
        read(tmp_path, text)
    assert exit_code_of(refused.value) == 2
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in refused.value.problems]


def documented() -> str:
    """Return the example in the module's docstring."""
    lines = (file_module.__doc__ or "").splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith("    ") or not line)


def test_omitted_keys_have_defaults(tmp_path: Path) -> None:
    pipeline = read(tmp_path, SMALL)
    assert pipeline == PipelineSpec(
        path=f"{tmp_path}/p.toml",
        name="orders",
        bootstrap_servers="127.0.0.1:9092",
        checkpoint=f"{tmp_path}/checkpoint",
        trigger_ms=10_000,
        master=None,
        conf={},
        sources=(
            SourceSpec("orders", 3, ("subscribe", "orders"), RowFormat.JSON, "id BIGINT", "earliest", None, (), {}),
        ),
        views=(),
        sinks=(SinkSpec("copy", 6, "orders", False, "copy", "append", None, {}),),
        dead_letters=None,
        reports="__logbrook_pipelines",
    )
    assert pipeline.group_of("copy") == "orders-copy"


def test_the_documented_file_is_read(tmp_path: Path) -> None:
    options = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "s3cr3t"}
    (tmp_path / "client.properties").write_text("acks=all\n" + "".join(f"{key}={options[key]}\n" for key in options))
    pipeline = read(tmp_path, documented())
    secured = options | {"security.protocol": "SASL_SSL"}
    assert pipeline.client == {f"kafka.{name}": value for name, value in secured.items()}
    assert "s3cr3t" not in repr(pipeline)
    assert pipeline.master == "local[4]"
    assert pipeline.conf == {"spark.sql.shuffle.partitions": "4"}
    assert pipeline.dead_letters == "orders-dead"
    (source,) = pipeline.sources
    (countries,) = pipeline.static_sources
    assert (countries.name, countries.format, countries.path) == (
        "countries",
        "logbrook_table",
        f"{tmp_path}/tables/countries",
    )
    assert source.watermark == Watermark("at", "10 minutes")
    assert source.unique == ("id",)
    assert source.keeps_tombstones
    assert source.options == {"maxOffsetsPerTrigger": "100000"}
    (view,) = pipeline.views
    assert (view.name, view.sql[:6]) == ("per_minute", "SELECT")
    totals, archive, current = pipeline.sinks
    assert (totals.key, totals.mode, totals.options) == ("minute", "update", {"compression": "zstd"})
    assert (archive.is_table, archive.target) == (True, f"{tmp_path}/tables/orders")
    assert archive.options == {"table.format": "delta", "partition.by": "day"}
    hour_ms = 3_600_000
    assert archive.maintenance == MaintenanceSpec(hour_ms, 24 * hour_ms, 7 * 24 * hour_ms)
    assert (current.mode, current.delete) == ("upsert", "amount IS NULL")
    rules = {"write.mode": "upsert", "upsert.keys": "id", "upsert.order": "at"}
    assert current.options == {"table.format": "delta", **rules}


def test_reports_are_written_to_another_topic_or_disabled(tmp_path: Path) -> None:
    assert read(tmp_path, 'reports = "told"\n' + SMALL).reports == "told"
    assert read(tmp_path, "reports = false\n" + SMALL).reports is None
    assert problems(tmp_path, "reports = true\n" + SMALL) == [
        "p.toml:1: reports = true, but it must be a text that is not empty"
    ]


def test_a_failed_query_is_restarted_by_default(tmp_path: Path) -> None:
    assert read(tmp_path, SMALL).restart == RestartPolicy(5, 1_000, 60_000)
    assert read(tmp_path, "restart = false\n" + SMALL).restart.attempts == 0
    text = f'{SMALL}[restart]\nattempts = 100\ndelay = "500ms"\ndelay_max = "5 minutes"\n'
    assert read(tmp_path, text).restart == RestartPolicy(100, 500, 300_000)
    wrong = f'{SMALL}[restart]\nattempts = -1\ndelay = "soon"\nattempt = true\n'
    assert problems(tmp_path, wrong) == [
        "p.toml:10: restart.attempts = -1, but it must be a whole number that is not negative",
        'p.toml:11: restart.delay = "soon", but it must be a duration such as "500ms" or "1 minute"',
        "p.toml:12: restart.attempt is not known; did you mean attempts?",
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


def test_values_may_have_schemas_in_a_registry(tmp_path: Path) -> None:
    registry = 'schema_registry = "http://here:8081"\n'
    avro = SMALL.replace('schema = "id BIGINT"', 'format = "avro"')
    (source,) = read(tmp_path, registry + avro).sources
    assert (source.format, source.schema, source.is_registered) == (RowFormat.AVRO, None, True)
    (source,) = read(tmp_path, registry + SMALL.replace('schema = "id BIGINT"\n', "")).sources
    assert (source.format, source.is_registered) == (RowFormat.JSON, True)
    assert not read(tmp_path, registry + SMALL).sources[0].is_registered, "JSON with a DDL needs no registry"
    for format_ in ("avro", "protobuf"):
        sink = f'topic = "copy"\nformat = "{format_}"\n'
        assert read(tmp_path, registry + SMALL.replace('topic = "copy"\n', sink)).sinks[0].options == {
            "value.format": format_,
            "schema.registry.url": "http://here:8081",
        }
        assert problems(tmp_path, SMALL.replace('topic = "copy"\n', sink)) == [
            f'p.toml:9: sinks.copy.format = "{format_}" needs schema_registry, a URL'
        ]
    assert problems(tmp_path, avro) == [
        'p.toml:5: sources.orders.format = "avro" needs schema_registry = "http://127.0.0.1:8081"'
    ]


def test_every_error_is_reported_with_its_line(tmp_path: Path) -> None:
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
        "p.toml:6: sources.orders has both topics and pattern; keep one of them",
        "p.toml:7: sources.orders.unique needs a watermark, which limits how long rows are remembered",
        'p.toml:8: sources.orders.format = "xml", but it must be json, avro, protobuf, string or bytes',
        "p.toml:12: sources.text.schema is for the format json, and this is string",
        'p.toml:13: sources.text.watermark.delay is missing; write for example delay = "10 minutes"',
        'p.toml:17: views.name is missing; write for example name = "per_minute"',
        "p.toml:18: views.nam is not known; did you mean name?",
        "p.toml:20: there are two sources or views named V1; the names must differ",
        "p.toml:22: views.sql = 3, but it must be a text that is not empty",
        'p.toml:24: sinks.totals.view = "v", but there is no such source or view; did you mean v1?',
        "p.toml:26: sinks.totals has both a topic and a table; write two sinks",
        "p.toml:30: sinks.t2.key is for a topic, and this sink has a table",
        'p.toml:31: sinks.t2.mode = "update", but it must be append or upsert',
        'p.toml:35: sinks.t3.format = "delta", but it must be json, avro or protobuf',
        'p.toml:36: sinks.t3.mode = "complete", but it must be append or update',
        'p.toml:37: sinks.t4.view is missing; write for example view = "orders"',
        "p.toml:37: sinks.t4 has neither a topic nor a table; write one of them",
        'p.toml:38: dead_letters.topic is missing; write for example topic = "orders-dead"',
        "p.toml:39: spark.foo is unknown; there are master and settings that begin with spark.",
        "p.toml:41: extra is not known; there are name, bootstrap_servers, checkpoint, trigger, schedule, reports, "
        "restart, client, spark, schema_registry, sources, views, sinks and dead_letters",
    ]


def test_tombstones_are_kept_or_not(tmp_path: Path) -> None:
    assert not read(tmp_path, SMALL).sources[0].keeps_tombstones
    problems_found = problems(tmp_path, SMALL.replace("schema =", 'tombstones = "keep"\nschema ='))
    assert problems_found == ['p.toml:5: sources.orders.tombstones = "keep", but it must be true or false']


def test_errors_of_upserts_and_maintenance_are_reported(tmp_path: Path) -> None:
    sinks = """\
[sinks.a]
view = "orders"
table = "a"
mode = "upsert"
[sinks.b]
view = "orders"
table = "b"
keys = ["id"]
delete = "x"
maintenance = { keep = "1d" }
[sinks.c]
view = "orders"
topic = "c"
mode = "upsert"
keys = ["id"]
[sinks.d]
view = "orders"
table = "d"
mode = "merge"
maintenance = { optimize = "often", vacuum = "0s", every = "1h" }
"""
    assert problems(tmp_path, SMALL + sinks) == [
        'p.toml:9: sinks.a.keys is missing; mode = "upsert" needs the columns of the key, such as ["id"]',
        'p.toml:16: sinks.b.keys is for mode = "upsert"',
        'p.toml:17: sinks.b.delete is for mode = "upsert"',
        'p.toml:18: sinks.b.maintenance has neither optimize nor vacuum; write for example optimize = "1h"',
        'p.toml:22: sinks.c.mode = "upsert", but it must be append or update',
        "p.toml:23: sinks.c.keys is for a table, and this sink has a topic",
        'p.toml:27: sinks.d.mode = "merge", but it must be append or upsert',
        'p.toml:28: sinks.d.maintenance.optimize = "often", but it must be a duration such as "1h" or "7 days"',
        'p.toml:28: sinks.d.maintenance.vacuum = "0s", but it must be a duration such as "1h" or "7 days"',
        "p.toml:28: sinks.d.maintenance.every is not known; there are optimize, vacuum and keep",
    ]


def test_a_pipeline_has_sources_and_sinks(tmp_path: Path) -> None:
    problems_found = problems(tmp_path, 'name = "x"\nbootstrap_servers = "h:1"\n')
    assert problems_found == [
        "p.toml:1: there is no source; add a table such as [sources.orders]",
        "p.toml:1: there is no sink; add a table such as [sinks.totals]",
    ]


def test_a_table_that_is_not_one_is_refused(tmp_path: Path) -> None:
    problems_found = problems(tmp_path, f"views = 1\n{SMALL.replace('[sinks.copy]', '[sinks]')}")
    assert problems_found[0] == "p.toml:1: views = 1, but it must be tables, each under a line [[views]]"
    assert problems_found[1:] == [
        "p.toml:1: there is no sink; add a table such as [sinks.totals]",
        'p.toml:8: sinks.view = "orders", but it must be the table [sinks.view]',
        'p.toml:9: sinks.topic = "copy", but it must be the table [sinks.topic]',
    ]


def test_names_are_valid_in_sql(tmp_path: Path) -> None:
    problems_found = problems(tmp_path, SMALL.replace("[sinks.copy]", '[sinks."a-b"]'))
    assert problems_found == ["p.toml:6: [sinks.a-b] must be named with letters, digits and underscores"]


@pytest.mark.parametrize("read", ['topic = "orders"', 'topics = ["a", "orders"]', 'pattern = "ord.*"'])
def test_dead_letters_are_not_read_again(tmp_path: Path, read: str) -> None:
    text = SMALL.replace('topic = "orders"', read)
    problems_found = problems(tmp_path, f'{text}[dead_letters]\ntopic = "orders"\n')
    must_be = "a topic that no source reads: a dead letter would fail to parse again"
    assert problems_found == [f'p.toml:10: dead_letters.topic = "orders", but it must be {must_be}']


def test_views_in_one_line_are_read_too(tmp_path: Path) -> None:
    views = 'views = [{ name = "a", sql = "SELECT 1" }, { name = "b", sql = "SELECT 2" }]\n'
    assert read(tmp_path, views + SMALL).views == (ViewSpec("a", 1, "SELECT 1"), ViewSpec("b", 1, "SELECT 2"))


def test_invalid_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    assert problems(tmp_path, 'name = "x"\nb = = 1\n') == ["p.toml:2: this is not TOML: Invalid value"]


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipelineError, match=r"none\.toml: it cannot be read: No such file or directory"):
        read_pipeline(str(tmp_path / "none.toml"))


def test_static_sources_are_tables_or_files(tmp_path: Path) -> None:
    files = 'files = "c/*.csv"\nformat = "csv"\nschema = "code STRING"\noptions = { header = true }'
    (source,) = read(tmp_path, f"{SMALL}[sources.countries]\n{files}\n").static_sources
    assert source == StaticSourceSpec("countries", 9, f"{tmp_path}/c/*.csv", "csv", "code STRING", {"header": "true"})


@pytest.mark.parametrize(
    ("keys", "problems_found"),
    [
        ('table = "t"\nfiles = "f"', "p.toml:11: sources.s has both table and files; keep one of them"),
        ('table = "t"\nformat = "csv"', "p.toml:11: sources.s.format is for files; a table's format is found in it"),
        (
            'files = "f"\nformat = "json"',
            "p.toml:9: sources.s.schema is missing; json needs one, such as",
        ),
        ('files = "f"\nwatermark = { column = "a", delay = "1s" }', "p.toml:11: sources.s.watermark is not known"),
    ],
)
def test_an_invalid_static_source_is_reported(tmp_path: Path, keys: str, problems_found: str) -> None:
    (problem,) = problems(tmp_path, f"{SMALL}[sources.s]\n{keys}\n")
    assert problem.startswith(problems_found)


def test_a_pipeline_needs_a_topic_to_stream_from(tmp_path: Path) -> None:
    text = SMALL.replace('topic = "orders"\nschema = "id BIGINT"', 'table = "orders"')
    (problem,) = problems(tmp_path, text)
    assert problem == "p.toml:1: no source reads a topic, so there is nothing to stream; add one with a topic"


@pytest.mark.parametrize("text", ["1h", "15 minutes", "0 3 * * *", "*/5 * * * 1-5"])
def test_a_schedule_replaces_the_trigger(tmp_path: Path, text: str) -> None:
    pipeline = read(tmp_path, f'schedule = "{text}"\n{SMALL}')
    assert pipeline.schedule is not None
    assert (pipeline.schedule.text, pipeline.trigger_ms) == (text, None)


@pytest.mark.parametrize(
    ("line", "problems_found"),
    [
        ('schedule = "daily"', 'but it must be a duration such as "15 minutes", or a cron line in UTC'),
        ('schedule = "0 25 * * *"', 'but it must be a duration such as "15 minutes", or a cron line in UTC'),
        ('schedule = "100ms"', "but it must be at least a second"),
        ('trigger = "1s"\nschedule = "1h"', "there are both trigger and schedule; keep one of them"),
    ],
)
def test_an_invalid_schedule_is_reported(tmp_path: Path, line: str, problems_found: str) -> None:
    (problem,) = problems(tmp_path, f"{line}\n{SMALL}")
    assert problems_found in problem


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('config = "absent"', "/absent cannot be used as a file of client options: No such file or directory"),
        ('sasl.password = "s3cr3t"', "option sasl.password: it needs security.protocol=SASL_SSL or SASL_PLAINTEXT"),
        ('ssl.ca = "x"', "option ssl.ca: there is no such option"),
    ],
)
def test_invalid_client_options_are_reported_without_their_values(tmp_path: Path, keys: str, reason: str) -> None:
    (problem,) = problems(tmp_path, f"{SMALL}[client]\n{keys}\n")
    assert reason in problem
    assert "s3cr3t" not in problem
