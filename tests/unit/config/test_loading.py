"""Settings from flags, the environment and a file: precedence and error messages."""

import subprocess
import sys
from pathlib import Path

import pytest

from logbrook.config import BrokerConfig, Durability
from logbrook.config.errors import SettingsRefusedError
from logbrook.config.loading import LoadedSettings, load_settings, merge_sources, read_mapping
from tests.unit.config.samples import KEYS, written


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "logbrook.toml"


def from_toml(file: Path, text: str, flags: dict[str, object] | None = None) -> LoadedSettings:
    file.write_text(text)
    return load_settings({"--config": str(file), **(flags or {})}, {})


def problems(flags: dict[str, object] | None = None, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsRefusedError) as refused:
        load_settings(flags or {}, environment or {})
    return str(refused.value).split("\n")


def problems_of_toml(file: Path, text: str) -> list[str]:
    file.write_text(text)
    return [problem.replace(str(file), "FILE") for problem in problems({"--config": str(file)})]


def as_toml(key: str, text: str) -> str:
    section, _, name = key.rpartition(".")
    return f'[{section}]\n{name} = "{text}"\n' if section else f'{name} = "{text}"\n'


def test_without_sources_every_setting_has_its_default() -> None:
    loaded = load_settings({}, {"PATH": "/bin"})
    assert loaded.config == BrokerConfig()
    assert set(loaded.origins.values()) == {"default"}


def test_a_flag_reaches_every_setting() -> None:
    for key in KEYS:
        setting, text, value = written(key)
        loaded = load_settings({setting.flag: text}, {})
        assert (loaded.value(key), loaded.origins[key]) == (value, setting.flag)


def test_a_variable_reaches_every_setting() -> None:
    for key in KEYS:
        setting, text, value = written(key)
        loaded = load_settings({}, {setting.variable: text})
        assert (loaded.value(key), loaded.origins[key]) == (value, setting.variable)


def test_a_line_of_the_file_reaches_every_setting(file: Path) -> None:
    for key in KEYS:
        setting, text, value = written(key)
        loaded = from_toml(file, as_toml(key, text))
        line = 2 if setting.section else 1
        assert (loaded.value(key), loaded.origins[key]) == (value, f"logbrook.toml:{line}")


def test_the_file_may_use_the_types_of_toml(file: Path) -> None:
    loaded = from_toml(
        file,
        'node_id = 7\ntopics = { auto_create = true }\nlog.cleanup_policy = ["compact"]\n'
        "log.min_cleanable_dirty_ratio = 1\nlog.retention_ms = -1\n",
    )
    assert loaded.config.node_id == 7
    assert loaded.config.topics.auto_create is True
    assert loaded.config.log.cleanup_policy == {"compact"}
    assert repr(loaded.config.log.min_cleanable_dirty_ratio) == "1.0"
    assert loaded.config.log.retention_ms == -1


def test_a_flag_wins_over_the_environment_and_that_over_the_file(file: Path) -> None:
    file.write_text('node_id = 1\n[topics]\npartitions = 1\n[storage]\ndurability = "interval"\n')
    environment = {"LOGBROOK_NODE": "2", "LOGBROOK_PARTITIONS": "2", "LOGBROOK_CONFIG": str(file)}
    loaded = load_settings({"--node": "3"}, environment)
    assert (loaded.config.node_id, loaded.origins["node_id"]) == (3, "--node")
    assert (loaded.config.topics.partitions, loaded.origins["topics.partitions"]) == (2, "LOGBROOK_PARTITIONS")
    assert loaded.config.storage.durability is Durability.INTERVAL
    assert loaded.origins["storage.durability"] == "logbrook.toml:5"
    assert loaded.origins["data"] == "default"


def test_the_flag_names_the_file_and_not_the_environment_when_both_do(file: Path) -> None:
    file.write_text("node_id = 5")
    loaded = load_settings({"--config": str(file)}, {"LOGBROOK_CONFIG": "/not/there"})
    assert loaded.config.node_id == 5


def test_an_empty_variable_names_no_file() -> None:
    assert load_settings({}, {"LOGBROOK_CONFIG": ""}).config == BrokerConfig()


def test_an_overridden_value_is_checked_too(file: Path) -> None:
    file.write_text("node_id = -1")
    assert problems({"--config": str(file), "--node": "3"}) == [
        f"{file}:1: node_id = -1, but it must be a whole number from 0 to 2147483647"
    ]


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("--partitions", "many", '--partitions = "many", but it must be a whole number from 1 to 10000'),
        ("--partitions", "0", '--partitions = "0", but it must be a whole number from 1 to 10000'),
        ("--durability", "maybe", '--durability = "maybe", but it must be fsync or interval'),
        ("--log-level", "", '--log-level = "", but it must be debug, info, warning or error'),
        (
            "--listen",
            "localhost",
            '--listen = "localhost", but it must be HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092',
        ),
        ("--data", "x" * 61 + "\0", f'--data = "{"x" * 60}...", but it must be the path of a directory'),
        ("--lissten", None, "--lissten is not a setting; did you mean --listen?"),
        ("--network-listen", None, "--network-listen is not a setting; did you mean --listen?"),
        ("--confg", None, "--confg is not a setting; did you mean --config?"),
        ("--zzz", None, "--zzz is not a setting; `logbrook config show` lists them all"),
        ("-z\x1b[2J", None, "-z\\x1b[2J is not a setting; `logbrook config show` lists them all"),
        (
            "--cluster-replica-lag-ms-max",
            "2s",
            '--cluster-replica-lag-ms-max = "2s", but it must be at least lease_ms, 3000',
        ),
        (
            "--log-compression-gzip-level",
            "0",
            '--log-compression-gzip-level = "0", but it must be -1 or a whole number from 1 to 9',
        ),
        ("start", None, '"start" is not an option; a setting is given as --flag VALUE'),
    ],
)
def test_mistakes_on_the_command_line_are_reported(flag: str, value: object, problem: str) -> None:
    assert problems({flag: value}) == [f"command line: {problem}"]


def test_a_default_that_does_not_fit_another_setting_is_reported() -> None:
    message = "settings: replica_lag_ms_max = 30000, but it must be at least lease_ms, 45000"
    assert problems({"--cluster-lease-ms": "45s"}) == [message]
    both = {"--cluster-lease-ms": "45s", "--cluster-replica-lag-ms-max": "45s"}
    assert load_settings(both, {}).config.cluster.replica_lag_ms_max == 45_000


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("LOGBROOK_NODE", "one", 'LOGBROOK_NODE = "one", but it must be a whole number from 0 to 2147483647'),
        ("LOGBROOK_OFFSETS", "x\n\x1b[2J", 'LOGBROOK_OFFSETS = "x\\n\\x1b[2J", but it must be topic or memory'),
        ("LOGBROOK_AUTO_CREATE_TOPICS", "", 'LOGBROOK_AUTO_CREATE_TOPICS = "", but it must be true or false'),
        ("LOGBROOK_LISTN", "x", "LOGBROOK_LISTN is not a setting; did you mean LOGBROOK_LISTEN?"),
        ("LOGBROOK_NETWORK__LISTEN", "x", "LOGBROOK_NETWORK__LISTEN is not a setting; did you mean LOGBROOK_LISTEN?"),
        ("LOGBROOK_QQQQQQ", "x", "LOGBROOK_QQQQQQ is not a setting; `logbrook config show` lists them all"),
    ],
)
def test_mistakes_in_the_environment_are_reported(variable: str, value: str, problem: str) -> None:
    assert problems(environment={variable: value}) == [f"environment: {problem}"]


@pytest.mark.parametrize(
    "variable",
    [
        "LOGBROOK_SERVICE_HOST",
        "LOGBROOK_SERVICE_PORT",
        "LOGBROOK_SERVICE_PORT_KAFKA",
        "LOGBROOK_PORT",
        "LOGBROOK_PORT_9092_TCP",
        "LOGBROOK_PORT_9092_TCP_ADDR",
        "LOGBROOK_HEADLESS_SERVICE_HOST",
        "MY_LOGBROOK_X",
        "LOGBROOK_BOOTSTRAP",
        "LOGBROOK_CLIENT_CONFIG",
        "LOGBROOK_SCHEMA_REGISTRY",
    ],
)
def test_variables_of_kubernetes_and_other_tools_are_ignored(variable: str) -> None:
    assert load_settings({}, {variable: "tcp://10.0.0.1:9092"}).config == BrokerConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n[network]\nlisten = 9092", "3: network.listen = 9092, but it must be HOST:PORT, such as 127.0.0.1:9092 "),
        ("node_id = 'x'", '1: node_id = "x", but it must be a whole number from 0 to 2147483647'),
        ("node_id = true", "1: node_id = true, but it must be a whole number from 0 to 2147483647"),
        ("data = 1979-05-27", "1: data = datetime.date(1979, 5, 27), but it must be the path of a directory"),
        ("data = { a = 1 }", "1: data = {'a': 1}, but it must be the path of a directory"),
        ("[log]\nsegment_bytes = '3GiB'", '2: log.segment_bytes = "3GiB", but it must be a size such as 64MiB or 1GiB'),
        (
            "[log]\ncleanup_policy = [\n'shred']",
            "2: log.cleanup_policy = ['shred'], but it must be any of delete and compact",
        ),
        ("[network]\nlisen = 'x'", "2: network.lisen is not a setting; did you mean network.listen?"),
        (
            "listen = 'x:1'",
            "1: listen is not a setting; did you mean network.listen or metrics.listen or console.listen?",
        ),
        ("[log]\ndurability = 'fsync'", "2: log.durability is not a setting; did you mean storage.durability?"),
        ("qqqqqq = 1", "1: qqqqqq is not a setting; `logbrook config show` lists them all"),
        ("'' = 1", "1:  is not a setting; `logbrook config show` lists them all"),
        ("'a\u0085b' = 1", "1: a\\x85b is not a setting; `logbrook config show` lists them all"),
        ("# x\n[netwrk]\nlisten = 'x:1'", "2: [netwrk] is not a section; did you mean [network]?"),
        (
            "[qqq]",
            "1: [qqq] is not a section; the sections are cluster, network, security, topics, log, groups, ",
        ),
        ("log = 5", "1: log = 5, but it must be the table [log]"),
        ("[[log]]\nsegment_bytes = 1", "1: log = [{'segment_bytes': 1}], but it must be the table [log]"),
        ("node_id 5", "1: this is not TOML: Expected '=' after a key in a key/value pair"),
    ],
)
def test_mistakes_in_the_file_are_reported_with_their_line(text: str, problem: str, file: Path) -> None:
    (message,) = problems_of_toml(file, text)
    assert message.startswith(f"FILE:{problem}")


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    missing = str(tmp_path / "x\n.toml")
    message = f"{tmp_path}/x\\n.toml: the settings cannot be read: No such file or directory"
    assert problems({"--config": missing}) == [message]
    assert problems({"--config": str(tmp_path)}) == [f"{tmp_path}: the settings cannot be read: Is a directory"]
    assert problems({"--config": "a\0b"}) == ["a\\x00b: the settings cannot be read: embedded null byte"]


def test_all_mistakes_are_reported_at_once_in_the_order_of_lines(file: Path) -> None:
    file.write_text("node_id = -1\nnode = 2\n[topics]\npartitions = 0\npartition = 1\n")
    flags: dict[str, object] = {"--config": str(file), "--durability": "maybe", "--foo": None}
    message = problems(flags, {"LOGBROOK_OFFSETS": "disk"})
    places = [problem.replace(str(file), "FILE").split(" ")[0] for problem in message]
    assert places == ["FILE:1:", "FILE:2:", "FILE:4:", "FILE:5:", "environment:", "command", "command"]


def test_loading_settings_imports_only_the_standard_library() -> None:
    """A third-party package would take most of a broker's start-up time."""
    script = (
        "import sys\nbefore = set(sys.modules)\nimport logbrook.config.loading, logbrook.config.kafka_settings\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(loaded - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['logbrook']\n"


def test_a_mapping_has_the_notation_of_the_file() -> None:
    sections: dict[str, object] = {
        "topics": {"partitions": 3},
        "topics.auto_create": "on",
        "node_id": 7,
        "network": {"advertise": None},
    }
    config = merge_sources([read_mapping(sections), read_mapping({"topics.partitions": 4})]).config
    assert (config.topics.partitions, config.topics.auto_create, config.node_id) == (4, True, 7)
    assert config.network.advertise is None
    mistakes: tuple[tuple[dict[str, object], str], ...] = (
        ({"topics.partition": 3}, "settings: topics.partition is not a setting; did you mean topics.partitions?"),
        ({"topics": 3}, "settings: topics = 3, but it must be the table [topics]"),
        ({"stroage": {}}, "settings: [stroage] is not a section; did you mean [storage]?"),
    )
    for settings, message in mistakes:
        with pytest.raises(SettingsRefusedError) as raised:
            merge_sources([read_mapping(settings)])
        assert str(raised.value) == message
