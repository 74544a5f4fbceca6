"""Run the demo in a temporary directory, or in the one given with --keep."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from demo.events import feed
from logbrook import Broker
from logbrook.client import EARLIEST, Client
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.records.record import RawRecord

HERE = Path(__file__).parent
_ORDERS = 20_000
_SPAN_S = 3_600.0
_SHOWN = 12


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make demo", description="Run a broker, a stream of orders and a Spark pipeline."
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="directory in which to keep the broker's data, the table and the checkpoint"
    )
    directory = parser.parse_args().keep
    if directory is not None:
        return run(Path(directory))
    with tempfile.TemporaryDirectory(prefix="logbrook-demo-") as temporary:
        return run(Path(temporary))


def run(directory: Path) -> int:
    console = Console()
    started_s = time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    with Broker(data=str(directory / "broker"), topics={"orders": 4, "revenue": 1, "orders-dead": 1}) as broker:
        console.print(f"A broker listens on {broker.bootstrap_servers}.")
        feed(broker.bootstrap_servers, "orders", _ORDERS, _SPAN_S)
        console.print(
            f"{_ORDERS:,} orders of the last hour are in the topic 'orders'. Running the pipeline on Spark:\n"
        )
        file = Path(shutil.copy(HERE / "orders.toml", directory))
        command = [sys.executable, "-m", "logbrook", "pipeline", "run", str(file)]
        process = subprocess.run([*command, "--bootstrap-servers", broker.bootstrap_servers], check=False)
        if process.returncode != 0:
            console.print("The pipeline failed; its error is above.", style="red")
            return process.returncode
        console.print(_table(directory / "revenue"))
        _print_topics(console, broker.bootstrap_servers, time.monotonic() - started_s)
    return 0


def _table(path: Path) -> Table:
    """Return the last windows of the table that the pipeline wrote, read without Spark."""
    rows = sorted(DeltaTable(str(path)).to_pyarrow_table().to_pylist(), key=lambda row: (row["since"], -row["revenue"]))
    table = Table(title=f"Delta table 'revenue': the last of {len(rows)} rows")
    for name, align in (("since", "left"), ("country", "left"), ("orders", "right"), ("revenue", "right")):
        table.add_column(name, justify=align)  # type: ignore[arg-type]
    for row in rows[-_SHOWN:]:
        table.add_row(f"{row['since']:%H:%M}", row["country"], f"{row['orders']:,}", f"{row['revenue']:,.2f}")
    return table


def _print_topics(console: Console, servers: str, took_s: float) -> None:
    with Client(servers) as client:
        updates, dead = _records(client, "revenue"), _records(client, "orders-dead")
    newest = json.loads(updates[-1].value or b"{}")
    console.print(f"\nThe topic 'revenue' has {len(updates)} updates; the newest is {newest}.")
    headers = {key: value.decode() for key, value in dead[0].headers if value is not None}
    console.print(
        f"The topic 'orders-dead' has {len(dead)} orders that could not be parsed; headers of the first: {headers}."
    )
    console.print(f"\nThe demo took {took_s:.0f} s. See also:")
    console.print("  demo/orders.toml           the pipeline: a source, a view in SQL, two sinks")
    console.print("  docs/SPARK.md              topics as DataFrames, tables, pipelines, bulk jobs")
    console.print("  make demo ARGS='--keep DIR'  keeps the data: logbrook serve --data DIR/broker")


def _records(client: Client, topic: str) -> list[RawRecord]:
    partition = TopicPartition(topic, 0)
    end, start = client.list_offset(topic, 0), client.list_offset(topic, 0, EARLIEST)
    records: list[RawRecord] = []
    with RecordsReader(client, {partition: start}, ends={partition: end}) as reader:
        while not reader.is_done:
            records += [record for run in reader.read() for record in run.records]
    return records


if __name__ == "__main__":
    sys.exit(main())
