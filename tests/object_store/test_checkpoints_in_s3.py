"""A checkpoint of Spark's Kafka source in an object store is converted like one on a local path."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.partition_requests import PartitionRequests
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark.checkpoint_files import CheckpointImportError
from logbrook.spark.checkpoint_import import import_checkpoint
from logbrook.spark.tables.storage import open_storage
from logbrook.spark.tables.store_options import store_options
from tests.object_store.s3_server import BUCKET, S3Server

RECORDED = Path(__file__).parents[1] / "unit/spark/recorded_kafka_checkpoint"
RECORDS = 100


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_checkpoints_may_be_in_an_object_store(s3_server: S3Server, tmp_path: Path) -> None:
    settings = {name.removeprefix("storage."): text for name, text in s3_server.options().items()}
    root = f"s3a://{BUCKET}/checkpoints/{uuid4()}"
    place = root.replace("s3a:", "s3:")
    storage = open_storage(place, store_options(place, settings, {}))
    for name, content in contents(RECORDED).items():
        storage.put(f"{place}/old/{name}", content)
    with Broker({"orders": 2}) as broker, Client(broker.bootstrap_servers) as client:
        for partition in range(2):
            client.produce("orders", partition, build_batch([Record(value=b"v")] * RECORDS))
        cluster = PartitionRequests(client)
        both = {"source_settings": settings, "target_settings": settings}
        imported = import_checkpoint(f"{root}/old", f"{root}/new", cluster, **both)
        assert (imported.batch_id, imported.is_committed) == (1, False)
        with pytest.raises(CheckpointImportError, match="the directory is not empty"):
            import_checkpoint(f"{root}/old", f"{root}/new", cluster, **both)
        import_checkpoint(f"{root}/old", str(tmp_path / "new"), cluster, source_settings=settings)
    copied = {
        file.path.removeprefix(f"{place}/new/"): storage.read(file.path) for file in storage.files(f"{place}/new")
    }
    assert copied == contents(tmp_path / "new")
    last = json.loads(copied["offsets/1"].decode().splitlines()[-1])
    assert last["orders"]["offsets"] == {"0": 98, "1": 100}
    assert copied["metadata"] == (RECORDED / "metadata").read_bytes()
