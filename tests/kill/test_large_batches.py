"""Records of large batches survive a kill: their segments are synced, and the write-ahead log has no copy of them."""

import re
from pathlib import Path
from urllib.request import urlopen

from logbrook.client import Client
from logbrook.model.identifiers import Offset
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.processes import free_port
from logbrook.testing.reaper import Reaper

TOPIC = "large"
# Several batches per segment, several segments.
SETTINGS = {"segment.bytes": str(4 << 20), "max.message.bytes": str(2 << 20)}
BATCHES = 10
START_S_MAX = 60.0


def test_acknowledged_batches_survive_a_kill_without_their_bytes_in_the_write_ahead_log(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    flags = ["--durability=fsync", f"--metrics={metrics}", "--log-level=warning"]
    values = [b"%d" % number + bytes(1_200_000) for number in range(BATCHES)]
    with Reaper() as reaper:
        broker = BrokerProcess(str(tmp_path / "data"), free_port(), str(tmp_path / "log"), flags, reaper)
        broker.start()
        broker.wait_until_ready(START_S_MAX)
        with Client(broker.address) as client:
            client.create_topic(TOPIC, 1, SETTINGS)
            for value in values:
                client.produce(TOPIC, 0, build_batch([Record(value=value, timestamp=0)]))
        with urlopen(f"http://{metrics}/metrics") as response:
            exposition = response.read().decode()
        broker.kill()
        broker.start()
        broker.wait_until_ready(START_S_MAX)
        with Client(broker.address) as client:
            batches = [client.fetch(TOPIC, 0, Offset(offset), bytes_max=1).records for offset in range(BATCHES)]
            read = [record.value for batch in batches for record in iter_records(batch, bytes_max=2 << 20)]
        broker.stop(START_S_MAX)
    assert read == values
    assert counted(exposition, "logbrook_wal_segment_syncs_total") == BATCHES
    assert counted(exposition, "logbrook_wal_written_bytes_total") < 1_200_000


def counted(exposition: str, name: str) -> float:
    line = re.search(rf"^{name} (\S+)$", exposition, re.MULTILINE)
    assert line is not None, name
    return float(line[1])
