"""Runs the demo and leaves nothing behind, unless --keep says so."""

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
from logbrook.records.reader import iter_records

HERE = Path(__file__).parent
_ORDERS = 20_000
_SPAN_S = 3_600.0
_SHOWN = 12
_VALUE_BYTES_MAX = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="A broker, a stream of orders, a pipeline on Spark.")
    parser.add_argument("--keep", metavar="DIR", help="keep the broker's data, the table and the checkpoint there")
    directory = parser.parse_args().keep
    if directory is not None:
        return run(Path(directory))
    with tempfile.TemporaryDirectory(prefix="logbrook-demo-") as temporary:
        return run(Path(temporary))


def run(directory: Path) -> int:
    console = Console()
    began_s = time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    with Broker(data=str(directory / "broker"), topics={"orders": 4, "revenue": 1, "orders-dead": 1}) as broker:
        console.print(f"A broker listens on {broker.bootstrap_servers}.")
        feed(broker.bootstrap_servers, "orders", _ORDERS, _SPAN_S)
        console.print(f"{_ORDERS:,} orders of the last hour are in the topic 'orders'. Now the pipeline, on Spark:\n")
        file = Path(shutil.copy(HERE / "orders.toml", directory))
        command = [sys.executable, "-m", "logbrook", "pipeline", "run", str(file)]
        done = subprocess.run([*command, "--bootstrap-servers", broker.bootstrap_servers], check=False)
        if done.returncode != 0:
            console.print("The pipeline failed; what it said is above.", style="red")
            return done.returncode
        console.print(_table(directory / "revenue"))
        _say_what_else(console, broker.bootstrap_servers, time.monotonic() - began_s)
    return 0


def _table(path: Path) -> Table:
    """The last windows of the table that the pipeline wrote, read without Spark."""
    rows = sorted(DeltaTable(str(path)).to_pyarrow_table().to_pylist(), key=lambda row: (row["since"], -row["revenue"]))
    table = Table(title=f"the table 'revenue', a Delta table: {len(rows)} rows, the last of them")
    for name, align in (("since", "left"), ("country", "left"), ("orders", "right"), ("revenue", "right")):
        table.add_column(name, justify=align)  # type: ignore[arg-type]
    for row in rows[-_SHOWN:]:
        table.add_row(f"{row['since']:%H:%M}", row["country"], f"{row['orders']:,}", f"{row['revenue']:,.2f}")
    return table


def _say_what_else(console: Console, servers: str, took_s: float) -> None:
    with Client(servers) as client:
        updates, dead = _records(client, "revenue"), _records(client, "orders-dead")
    newest = json.loads(updates[-1].value or b"{}")
    console.print(f"\nThe topic 'revenue' has {len(updates)} updates; the newest says {newest}.")
    headers = {key: value.decode() for key, value in dead[0].headers if value is not None}
    console.print(f"The topic 'orders-dead' has {len(dead)} orders that do not parse; the first was {headers}.")
    console.print(f"\nAll of it took {took_s:.0f} s. Look further:")
    console.print("  demo/orders.toml           the pipeline: a source, a view in SQL, two sinks")
    console.print("  docs/SPARK.md              topics as DataFrames, tables, pipelines, bulk jobs")
    console.print("  make demo ARGS='--keep DIR'  keeps the data: logbrook serve --data DIR/broker")


def _records(client: Client, topic: str) -> list:  # type: ignore[type-arg]
    end, offset = client.list_offset(topic, 0), client.list_offset(topic, 0, EARLIEST)
    found = []
    while offset < end:
        for batch in client.fetch(topic, 0, offset).batches:
            records = list(iter_records(batch, bytes_max=_VALUE_BYTES_MAX))
            found += records
            offset = max(offset, records[-1].offset + 1)
    return found


if __name__ == "__main__":
    sys.exit(main())
