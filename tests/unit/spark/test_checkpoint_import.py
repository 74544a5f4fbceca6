"""A checkpoint of Spark's Kafka source becomes one from which our source continues exactly."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark.checkpoint_files import CheckpointImportError
from logbrook.spark.checkpoint_import import ImportedCheckpoint, import_checkpoint
from logbrook.spark.errors import OptionError
from logbrook.spark.offset_ranges import RangePartition
from logbrook.spark.read_options import read_options
from logbrook.spark.stream_reader import TopicStreamReader
from logbrook.spark.tables.storage import LocalSink, LocalStorage
from tests.unit.cli.shell import Shell

# Written by Spark 4.3 and its Kafka connector. Batch 0 is committed, batch 1 is not.
RECORDED = Path(__file__).parent / "recorded_kafka_checkpoint"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1763355600000,"conf":{"spark.sql.shuffle.partitions":"2"}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
QUERY = '{"id":"5e1d4ff1-3d3c-4f4e-8d0f-5d2f9a1f7b6c"}'
INITIAL = '\0v1\n{"orders":{"1":0,"0":0}}'
RECORDS = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Topics `orders` and `payments` with RECORDS records in each partition."""
    topics = {"orders": 2, "payments": 1}
    with Broker(topics) as broker, Client(broker.bootstrap_servers) as client:
        for topic, partitions in topics.items():
            for partition in range(partitions):
                client.produce(topic, partition, build_batch([Record(value=b"v")] * RECORDS))
        yield broker


def checkpoint(directory: Path, *batches: str, committed: int) -> Path:
    """Write a checkpoint with these offsets of batches 0, 1, …, of which the first `committed` are committed."""
    files = {"metadata": QUERY, "sources/0/0": INITIAL, "state/0/0/1.delta": "state", "state/0/0/.1.delta.crc": "sum"}
    for number, offsets in enumerate(batches):
        files |= {f"offsets/{number}": f"v1\n{METADATA}\n{offsets}", f"offsets/.{number}.crc": "old checksum"}
        files |= {f"offsets/{number}.crc": "old checksum"}
        if number < committed:
            files |= {f"commits/{number}": COMMIT, f"commits/.{number}.crc": "checksum"}
    for name, text in files.items():
        path = directory / "old" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory / "old"


def convert(broker: Broker, old: Path) -> ImportedCheckpoint:
    with Client(broker.bootstrap_servers) as client:
        return import_checkpoint(str(old), str(old.parent / "new"), PartitionRequests(client))


def logged(old: Path, batch_id: int) -> list[Any]:
    """Return the offsets of each source in the new checkpoint."""
    text = (old.parent / "new" / "offsets" / str(batch_id)).read_text()
    version, metadata, *offsets = text.split("\n")
    assert (version, metadata) == ("v1", METADATA)
    return [json.loads(offset) for offset in offsets]


def test_a_recorded_checkpoint_is_converted(broker: Broker, tmp_path: Path) -> None:
    imported = convert(broker, Path(shutil.copytree(RECORDED, tmp_path / "old")))
    assert imported == (1, False, {TopicPartition("orders", 0): 98, TopicPartition("orders", 1): 100}, None)
    documents = [
        json.loads((tmp_path / "new" / "offsets" / name).read_text().splitlines()[-1])["orders"] for name in "01"
    ]
    assert [document["offsets"] for document in documents] == [{"0": 49, "1": 50}, {"0": 98, "1": 100}]
    with Client(broker.bootstrap_servers) as client:
        assert {document["id"] for document in documents} == {client.topic_id("orders").hex()}
    assert (tmp_path / "new" / "metadata").read_bytes() == (RECORDED / "metadata").read_bytes()


def test_the_query_continues_after_a_complete_batch(broker: Broker, tmp_path: Path) -> None:
    old = checkpoint(tmp_path, '{"orders":{"1":3,"0":5}}', '{"orders":{"1":11,"0":20}}', committed=2)
    imported = convert(broker, old)
    assert imported == (1, True, {TopicPartition("orders", 0): 20, TopicPartition("orders", 1): 11}, None)
    (start,) = logged(old, 1)
    reader = TopicStreamReader(options(broker), ("offset",))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert ranges(reader, start, end) == [("orders-0", 20, RECORDS), ("orders-1", 11, RECORDS)]
    reader.stop()


def test_a_batch_that_is_not_complete_is_repeated_with_the_same_offsets(broker: Broker, tmp_path: Path) -> None:
    old = checkpoint(tmp_path, '{"orders":{"1":3,"0":5}}', '{"orders":{"1":11,"0":20}}', committed=1)
    imported = convert(broker, old)
    assert (imported.batch_id, imported.is_committed, imported.starting_option) == (1, False, None)
    ((start,), (end,)) = (logged(old, batch_id) for batch_id in (0, 1))
    reader = TopicStreamReader(options(broker), ("offset",))
    assert ranges(reader, start, end) == [("orders-0", 5, 20), ("orders-1", 3, 11)]
    reader.stop()


def test_the_start_of_an_incomplete_first_batch_is_reported(broker: Broker, tmp_path: Path) -> None:
    imported = convert(broker, checkpoint(tmp_path, '{"orders":{"1":3,"0":5}}', committed=0))
    assert imported.starting_option == '{"orders": {"0": 0, "1": 0}}'


def options(broker: Broker) -> Any:
    return read_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}, is_batch=False)


def ranges(reader: TopicStreamReader, start: Any, end: Any) -> list[tuple[str, int, int]]:
    parts = [part.range for part in reader.partitions(start, end) if isinstance(part, RangePartition)]
    return sorted((str(part.partition), part.start, part.end) for part in parts)


def test_all_else_is_copied(broker: Broker, tmp_path: Path) -> None:
    old = checkpoint(tmp_path, '{"orders":{"1":3,"0":5}}', committed=1)
    before = {path: path.read_text() for path in old.rglob("*") if path.is_file()}
    convert(broker, old)
    assert before == {path: path.read_text() for path in old.rglob("*") if path.is_file()}, "the old one is unchanged"
    new = tmp_path / "new"
    for name in ("metadata", "state/0/0/1.delta", "state/0/0/.1.delta.crc", "commits/0", "commits/.0.crc"):
        assert (new / name).read_text() == (old / name).read_text()
    assert [path.name for path in (new / "offsets").iterdir()] == ["0"], "no checksums of the old files"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_other_sources_of_the_query_are_kept(broker: Broker, tmp_path: Path) -> None:
    lines = ['{"logOffset":7}', '{"orders":{"0":5}}', "-", '{"payments":{"0":9}}', "12"]
    old = checkpoint(tmp_path, "\n".join(lines), committed=1)
    imported = convert(broker, old)
    assert imported.offsets == {TopicPartition("orders", 0): 5, TopicPartition("payments", 0): 9}
    written = (tmp_path / "new" / "offsets" / "0").read_text().split("\n")[2:]
    assert [written[0], written[2], written[4]] == [lines[0], lines[2], lines[4]]
    assert json.loads(written[1])["orders"]["offsets"] == {"0": 5}
    assert json.loads(written[3])["payments"]["offsets"] == {"0": 9}


def test_named_sources_of_the_second_version_are_read(broker: Broker, tmp_path: Path) -> None:
    old = checkpoint(tmp_path, "{}", committed=1)
    (old / "offsets" / "0").write_text(f'v2\n{METADATA}\nin:{{"orders":{{"0":5}}}}\nfiles:{{"logOffset":7}}')
    convert(broker, old)
    version, _, orders, files = (tmp_path / "new" / "offsets" / "0").read_text().split("\n")
    assert (version, files) == ("v2", 'files:{"logOffset":7}')
    assert json.loads(orders.removeprefix("in:"))["orders"]["offsets"] == {"0": 5}


def test_a_topic_deleted_since_an_earlier_batch_is_left_out(broker: Broker, tmp_path: Path) -> None:
    old = checkpoint(tmp_path, '{"gone":{"0":3},"orders":{"0":5}}', '{"orders":{"0":6}}', committed=2)
    convert(broker, old)
    assert list(logged(old, 0)[0]) == ["orders"]


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ('{"gone":{"0":3}}', "its query reads topic 'gone', which this cluster does not have"),
        ('{"orders":{"2":3}}', "its query reads orders-2, which this cluster does not have"),
        ('{"orders":{"0":201}}', "has read orders-0 up to offset 201, and the partition ends at 200: this is not the"),
        ('{"logOffset":7}', "batch 0 has no offsets of Spark's Kafka source"),
        ('{"orders":{"id":"00","offsets":{"0":3}}}', "it is a checkpoint of Logbrook's source already"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(broker: Broker, tmp_path: Path, offsets: str, reason: str) -> None:
    old = checkpoint(tmp_path, offsets, committed=1)
    with pytest.raises(CheckpointImportError, match=f"^checkpoint '{old}': .*{reason}"):
        convert(broker, old)
    assert not (tmp_path / "new").exists()


def test_directories_are_checked(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(CheckpointImportError, match="there is no offset log in it"):
        convert(broker, tmp_path / "old")
    old = checkpoint(tmp_path, '{"orders":{"0":5}}', committed=1)
    (old / "offsets" / "1").write_text("v3\n{}\n{}")
    with pytest.raises(CheckpointImportError, match="offsets/1 is not an offset log of version 1 or 2"):
        convert(broker, old)
    (old / "offsets" / "1").unlink()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "x").touch()
    with pytest.raises(CheckpointImportError, match="the directory is not empty; give a new one"):
        convert(broker, old)
    with Client(broker.bootstrap_servers) as client, pytest.raises(OptionError, match="'hdfs:/c' does not"):
        import_checkpoint("hdfs:/c", str(tmp_path / "new"), PartitionRequests(client))
    with Client(broker.bootstrap_servers) as client, pytest.raises(OptionError, match="the scheme 'dbfs'"):
        import_checkpoint("dbfs:/c", str(tmp_path / "new"), PartitionRequests(client))


def test_nothing_is_left_if_the_new_one_cannot_be_written(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = checkpoint(tmp_path, '{"orders":{"0":5}}', committed=1)

    create = LocalStorage.create

    def create_unless_full(storage: LocalStorage, path: str) -> LocalSink:
        if "/offsets/" in path:
            raise OSError(28, "No space left on device", path)
        return create(storage, path)

    monkeypatch.setattr(LocalStorage, "create", create_unless_full)
    with pytest.raises(CheckpointImportError, match=f"^checkpoint '{tmp_path}/new': it cannot be written: .*No space"):
        convert(broker, old)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_the_command_prints_the_offsets_at_which_the_query_continues(broker: Broker, tmp_path: Path) -> None:
    old = checkpoint(tmp_path, '{"orders":{"1":3,"0":5}}', committed=0)
    shell = Shell(broker.bootstrap_servers, tmp_path)
    done = shell.run("pipeline", "import-checkpoint", str(old), str(tmp_path / "new"))
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()[1:]] == [["orders", "0", "5"], ["orders", "1", "3"]]
    assert 'the first: start the query with startingOffsets = {"orders": {"0": 0, "1": 0}}' in done.err
    refusal = shell.refused("pipeline", "import-checkpoint", str(old), str(tmp_path / "new"), code=2)
    assert refusal == f"checkpoint '{tmp_path}/new': the directory is not empty; give a new one"
    assert shell.json("pipeline", "import-checkpoint", str(old), str(tmp_path / "other")) == {
        "batch_id": 0,
        "is_committed": False,
        "startingOffsets": '{"orders": {"0": 0, "1": 0}}',
        "offsets": [
            {"topic": "orders", "partition": 0, "offset": 5},
            {"topic": "orders", "partition": 1, "offset": 3},
        ],
    }
