"""`logbrook log`, as a shell sees it: on directories that real brokers left, and on one that is running."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logbrook.client import Client, Producer
from logbrook.client.transactional import TransactionalProducer
from logbrook.model.identifiers import Offset
from logbrook.records.batch import HEADER_BYTES, Codec, renew_crc
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.testing import Broker
from logbrook.testing.processes import free_port
from tests.unit.cli.invocation import invoke
from tests.unit.cli.pseudo_terminal import PseudoTerminal

# The minimum of the topic setting.
SMALL_SEGMENTS = {"segment.bytes": "1024"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = invoke("log", *arguments)
    return subprocess.CompletedProcess(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def broker_on(data: Path) -> Iterator[Broker]:
    with Broker(data=str(data), settings={"metrics": {"listen": "127.0.0.1:0"}}) as broker:
        yield broker


def filled(data: Path, settings: Mapping[str, str] | None = None, batches: int = 6, keys: int = 2) -> None:
    """A directory with topic `orders`, with one record of 300 bytes in each batch."""
    with broker_on(data) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("orders", 1, settings)
        for number in range(batches):
            record = Record(b"k%d" % (number % keys), b"%d:" % number + b"v" * 300, (("h", b"x"),), timestamp=1_000_000)
            client.produce("orders", 0, build_batch([record]))


def segments(data: Path) -> list[Path]:
    return sorted((data / "orders-0").glob("*.log"))


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)


def test_dump_prints_batches_with_their_headers(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("orders")
        client.produce("orders", 0, build_batch([Record(b"k", b"v", timestamp=5_000)] * 3, codec=Codec.GZIP))
        with Producer(client) as producer:
            batch = build_batch(
                [Record(None, b"x", timestamp=6_000)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
            )
            producer.send("orders", 0, batch)
        producer_id = producer.producer_id
    first, second = lines(run("dump", "orders-0", "--data", str(tmp_path), "--json"))
    assert (first["base_offset"], first["last_offset"], first["records"], first["codec"]) == (0, 2, 3, "gzip")
    assert (first["producer_id"], first["crc_ok"], first["damage"], first["max_timestamp"]) == (None, True, None, 5_000)
    assert (second["base_offset"], second["producer_id"], second["base_sequence"]) == (3, producer_id, 0)
    table = run("dump", "orders-0", "--data", str(tmp_path)).stdout.splitlines()
    assert table[0].split()[:3] == ["OFFSET", "LAST", "RECORDS"]
    assert table[1].split()[:3] == ["0", "2", "3"]
    assert table[1].split()[-1] == "ok"
    assert len(table) == 3


def test_dump_shows_transactional_batches_and_markers(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("orders")
        with TransactionalProducer(client, "t") as producer:
            for ends in (producer.commit, producer.abort):
                producer.begin()
                batch = build_batch(
                    [Record(None, b"x", timestamp=6_000)],
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=producer.next_sequence("orders", 0),
                    transactional=True,
                )
                producer.send("orders", 0, batch)
                producer.flush()
                ends()
    batches = lines(run("dump", "orders-0", "--data", str(tmp_path), "--json"))
    assert [batch["transaction"] for batch in batches] == ["data", "commit", "data", "abort"]


def test_dump_prints_records_and_begins_at_an_offset(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS)
    batches = lines(run("dump", "orders-0", "--data", str(tmp_path), "--json", "--records", "--from", "4"))
    assert [batch["base_offset"] for batch in batches] == [4, 5]
    (record,) = batches[0]["content"]
    assert (record["offset"], record["key"], record["value"][:2], record["topic"]) == (4, "k0", "4:", "orders")
    assert record["headers"] == [{"key": "h", "value": "x"}]
    shown = run("dump", "orders-0", "--data", str(tmp_path), "--records", "--from", "4", "--count", "1").stdout
    assert "k0  4:vvv" in shown
    assert "k1" not in shown
    beyond = run("dump", "orders-0", "--data", str(tmp_path), "--from", "100")
    assert (beyond.returncode, beyond.stdout) == (0, "")
    assert beyond.stderr == "orders-0 has no batches from offset 100 on\n"


def test_dump_reads_a_segment_file_and_shows_its_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    (file,) = segments(tmp_path)
    flip(file, HEADER_BYTES + 5)
    batches = lines(run("dump", str(file), "--json"))
    assert [batch["crc_ok"] for batch in batches] == [False, True, True, True, True, True]
    assert "CRC32C" in batches[0]["damage"]
    assert "BAD" in run("dump", str(file)).stdout.splitlines()[1]
    file.write_bytes(file.read_bytes()[:-10])
    last = lines(run("dump", str(file), "--json"))[-1]
    assert (last["base_offset"], last["crc_ok"]) == (None, False)
    assert "bytes are not a batch" in run("dump", str(file)).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dump", "./nothing.log"], "./nothing.log cannot be read: No such file or directory"),
        (["dump", "nothing-0"], "there is no partition or topic nothing-0 here; there are the topics"),
        (["verify", "nothing"], "there is no partition or topic nothing here"),
        (
            ["verify", "--data", "/nonexistent"],
            "there is no directory /nonexistent; name the broker's data directory with --data",
        ),
        (["verify", "--data", "/usr"], "/usr is not a data directory"),
        (["compact", "--broker", "http://127.0.0.1:9", "--yes"], "is it the broker's --metrics address"),
    ],
)
def test_failures_are_reported_in_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    filled(tmp_path, batches=1)
    given = arguments if "--data" in arguments or "--broker" in arguments else [*arguments, "--data", str(tmp_path)]
    done = run(*given)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_in_use_by_a_broker_is_refused(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker:
        broker.create_topic("orders")
        for command in (
            ["dump", "orders-0"],
            ["verify"],
            ["repair"],
            ["skip", "orders-0", "0"],
            ["compact"],
            ["retain"],
            ["index"],
        ):
            done = run(*command, "--data", str(tmp_path))
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith(f"error: {tmp_path} is in use by a broker; stop it first")


def test_verify_reports_intact_partitions(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS)
    done = run("verify", "orders", "--data", str(tmp_path), "--json")
    (report,) = json.loads(done.stdout)
    assert done.returncode == 0
    assert report == {
        "topic": "orders",
        "partition": 0,
        "segments": len(segments(tmp_path)),
        "batches": 6,
        "records": 6,
        "bytes": sum(file.stat().st_size for file in segments(tmp_path)),
        "damage": None,
    }
    table = run("verify", "--data", str(tmp_path)).stdout
    assert "__cluster_metadata-0" in table
    assert "orders-0" in table
    assert "BAD" not in table


def test_after_a_crash_dump_warns_and_verify_recovers_the_write_ahead_log(tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    with broker_on(tmp_path / "data") as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("orders")
        client.produce("orders", 0, build_batch([Record(None, b"x", timestamp=1_000)]))
        # The files after a power loss in the worst case: bytes that were not synced are lost.
        shutil.copytree(tmp_path / "data", crashed)
    segments(crashed)[0].write_bytes(b"")
    done = run("dump", "orders-0", "--data", str(crashed), "--json")
    assert (done.returncode, done.stdout) == (0, "")
    assert "its write-ahead log may have more" in done.stderr
    (report,) = json.loads(run("verify", "orders", "--data", str(crashed), "--json").stdout)
    assert (report["records"], report["damage"]) == (1, None)
    assert len(lines(run("dump", "orders-0", "--data", str(crashed), "--json"))) == 1


def test_verify_finds_damage_and_repair_keeps_intact_batches_and_the_original(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS)
    first = segments(tmp_path)[0]
    damaged = first.stat().st_size // 2 + HEADER_BYTES + 5
    flip(first, damaged)
    before = first.read_bytes()

    done = run("verify", "--data", str(tmp_path), "--json")
    (bad,) = [report for report in json.loads(done.stdout) if report["damage"]]
    assert done.returncode == 1
    assert (bad["topic"], bad["damage"]["file"]) == ("orders", f"orders-0/{first.name}")
    assert (bad["damage"]["position"], bad["damage"]["offset"]) == (first.stat().st_size // 2, 1)
    assert "logbrook log repair orders-0" in done.stderr

    asked = run("repair", "orders-0", "--data", str(tmp_path))
    assert asked.returncode == 2
    assert "give --yes to go ahead" in asked.stderr
    assert first.read_bytes() == before

    done = run("repair", "--data", str(tmp_path), "--yes", "--json")
    assert done.returncode == 0
    assert "offsets 1 to 1 have no records" in done.stderr
    (repaired,) = json.loads(done.stdout)
    assert repaired["missing_offsets"] == [[1, 1]]
    assert repaired["end_offset"] == 6
    (aside,) = repaired["kept_aside"]
    assert (tmp_path / aside).read_bytes() == before
    assert run("verify", "--data", str(tmp_path)).returncode == 0
    with broker_on(tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert client.produce("orders", 0, build_batch([Record(None, b"x", timestamp=1)])) == 6


def test_repair_asks_on_a_terminal_and_stops_at_no(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(segments(tmp_path)[0], HEADER_BYTES + 5)
    before = segments(tmp_path)[0].read_bytes()
    with PseudoTerminal("log", "repair", "orders-0", "--data", str(tmp_path)) as terminal:
        terminal.wait_for(r"is corrupt at byte 0[\s\S]*\[y/N\]")
        terminal.type("n\n")
        assert terminal.end() == 1
        assert "nothing was changed" in terminal.text
    assert segments(tmp_path)[0].read_bytes() == before


def test_repair_of_an_intact_log_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    before = segments(tmp_path)[0].read_bytes()
    done = run("repair", "orders-0", "--data", str(tmp_path), "--yes")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no damage is known" in done.stderr
    assert segments(tmp_path)[0].read_bytes() == before


def test_skip_empties_a_poison_batch_and_consumers_continue_after_it(tmp_path: Path) -> None:
    bad = build_batch([Record(b"k", b"bad" * 20), Record(b"k", b"bad")])
    # The length of the first key. The checksum holds, so the broker stores the batch.
    bad[HEADER_BYTES + 5] = 0x7D
    renew_crc(memoryview(bad), 0, len(bad))
    with broker_on(tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("orders", 1)
        for batch in (build_batch([Record(b"k", b"before")]), bad, build_batch([Record(b"k", b"after")])):
            client.produce("orders", 0, batch)
    place = ("--data", str(tmp_path))
    asked = run("skip", "orders-0", "2", *place)
    assert asked.returncode == 2
    assert "offsets 1 to 2 claims 2 records" in asked.stderr
    assert "cannot be decoded" in asked.stderr
    done = run("skip", "orders-0", "2", *place, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["base_offset"], report["last_offset"], report["records"]) == (1, 2, 2)
    assert "key" in report["fault"]
    assert (tmp_path / report["kept_aside"]).read_bytes()[HEADER_BYTES:] == bad[HEADER_BYTES:]
    for wrong, message in ((1, "empty already"), (9, "outside 0 to 4")):
        again = run("skip", "orders-0", str(wrong), *place, "--yes")
        assert again.returncode == 1
        assert message in again.stderr
    assert run("verify", *place).returncode == 0
    with broker_on(tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        batches = client.fetch("orders", 0, Offset(1)).batches
        values = [record.value for batch in batches for record in iter_records(batch, bytes_max=10_000)]
        assert values == [b"after"]


def test_compact_keeps_the_newest_record_of_each_key(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS | {"cleanup.policy": "compact"})
    assert run("compact", "--data", str(tmp_path)).returncode == 2
    done = run("compact", "--data", str(tmp_path), "--active", "--yes", "--json")
    (compacted,) = [report for report in json.loads(done.stdout) if report["topic"] == "orders"]
    assert compacted["bytes_after"] < compacted["bytes_before"]
    batches = lines(run("dump", "orders-0", "--data", str(tmp_path), "--json", "--records"))
    assert [record["value"][:2] for batch in batches for record in batch["content"]] == ["4:", "5:"]
    assert not list((tmp_path / "orders-0").glob("*.deleted"))
    again = run("compact", "orders", "--data", str(tmp_path), "--yes")
    assert again.stdout == "there is nothing to compact in 1 partition with cleanup.policy=compact\n"


def test_retain_deletes_expired_segments_but_no_internal_logs(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS | {"retention.ms": "1000"})
    done = run("retain", "--data", str(tmp_path), "--yes", "--json")
    reports = {report["topic"]: report for report in json.loads(done.stdout)}
    assert "__cluster_metadata" not in reports
    assert (reports["orders"]["start_offset"], reports["orders"]["segments_removed"] > 1) == (6, True)
    assert [file.stat().st_size for file in segments(tmp_path)] == [0]
    with broker_on(tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert client.list_offset("orders", 0) == 6


def test_index_rebuilds_indexes(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS)
    indexes = sorted((tmp_path / "orders-0").glob("*.index"))
    for index in indexes:
        index.unlink()
    done = run("index", "orders", "--data", str(tmp_path), "--json")
    assert json.loads(done.stdout) == [{"topic": "orders", "partition": 0, "indexes": len(indexes)}]
    assert sorted((tmp_path / "orders-0").glob("*.index")) == indexes


def url_of(broker: Broker) -> str:
    address = broker._running.http_address
    assert address is not None
    return "http://{}:{}".format(*address)


def test_a_running_broker_is_maintained_and_verified(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS | {"retention.ms": "1000"})
    with broker_on(tmp_path) as broker:
        servers = broker.bootstrap_servers
        (checked,) = json.loads(run("verify", "orders", "--bootstrap", servers, "--json").stdout)
        assert (checked["batches"], checked["records"], checked["damage"]) == (6, 6, None)
        done = run("retain", "--broker", url_of(broker), "--yes", "--json")
        assert json.loads(done.stdout)["segments_removed"] > 1
        assert run("compact", "--broker", url_of(broker), "--yes").stdout.startswith("segments removed")
        assert run("retain", "--broker", url_of(broker)).returncode == 2, "somebody has to say yes"
    assert run("verify", "--data", str(tmp_path)).returncode == 0


def test_a_running_broker_maintains_the_partitions_that_are_named(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS | {"cleanup.policy": "compact,delete", "retention.bytes": "1"})
    with broker_on(tmp_path) as broker:
        broker.create_topic("others", 1, SMALL_SEGMENTS | {"cleanup.policy": "compact"})
        done = run("retain", "others", "--broker", url_of(broker), "--yes", "--json")
        assert json.loads(done.stdout)["segments_removed"] == 0
        done = run("compact", "orders-0", "--broker", url_of(broker), "--active", "--yes", "--json")
        report = json.loads(done.stdout)
        assert (report["logs_compacted"], report["segments_removed"]) == (1, 0)
        done = run("retain", "orders-0", "others", "--broker", url_of(broker), "--yes", "--json")
        assert json.loads(done.stdout)["segments_removed"] > 0
        refused = run("retain", "nothing", "--broker", url_of(broker), "--yes")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == "error: the broker could not do it: there is no partition or topic nothing here\n"


def test_partial_maintenance_is_reported_with_results_and_errors(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS | {"cleanup.policy": "compact"})
    flip(segments(tmp_path)[0], HEADER_BYTES + 5)
    with broker_on(tmp_path) as broker:
        done = run("compact", "--broker", url_of(broker), "--yes", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["bytes_compacted"] >= 0
    assert "orders-0 is corrupt" in done.stderr or "is corrupt at byte 0" in done.stderr


def test_a_running_broker_verifies_its_files_with_the_same_output(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS)
    flip(segments(tmp_path)[1], HEADER_BYTES + 5)
    with broker_on(tmp_path) as broker:
        by_broker = run("verify", "--broker", url_of(broker), "--json")
        verified = run("verify", "orders", "--broker", url_of(broker))
    by_command = run("verify", "--data", str(tmp_path), "--json")
    assert (by_broker.returncode, by_command.returncode) == (1, 1)
    orders = [
        next(report for report in json.loads(done.stdout) if report["topic"] == "orders")
        for done in (by_broker, by_command)
    ]
    assert orders[0] == orders[1]
    assert orders[0]["damage"]["file"] == f"orders-0/{segments(tmp_path)[1].name}"
    assert verified.stdout.splitlines()[-1].split()[-1] == "BAD"
    assert by_broker.stderr.splitlines()[0] == by_command.stderr.splitlines()[0]
    assert "stop the broker and run `logbrook log repair orders-0`" in verified.stderr


def test_verify_falls_back_to_the_cluster_if_the_http_listener_is_down(tmp_path: Path) -> None:
    filled(tmp_path, SMALL_SEGMENTS)
    nobody = f"http://127.0.0.1:{free_port()}"
    refused = run("verify", "--broker", nobody)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "With --bootstrap HOST:PORT" in refused.stderr
    assert run("verify", "--broker", nobody, "--data", str(tmp_path)).returncode == 2
    with broker_on(tmp_path) as broker:
        done = run("verify", "orders", "--broker", nobody, "--bootstrap", broker.bootstrap_servers, "--json")
        (report,) = json.loads(done.stdout)
        assert (done.returncode, report["segments"], report["records"]) == (0, None, 6)
        assert done.stderr.endswith(f"Reading from {broker.bootstrap_servers} instead\n")
        unknown = run("verify", "nothing", "--broker", url_of(broker))
        assert unknown.stderr == "error: the broker could not do it: there is no partition or topic nothing here\n"


def test_verify_through_a_cluster_finds_damaged_batches(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(segments(tmp_path)[0], HEADER_BYTES + 5)
    with broker_on(tmp_path) as broker:
        done = run("verify", "orders", "--bootstrap", broker.bootstrap_servers)
    assert done.returncode == 1
    assert "orders-0: around offset 0: CRC32C" in done.stderr
