"""`logbrook top`: on a terminal, as one table, as lines of JSON; with a broker that comes and goes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logbrook.cli.top_metrics import parse_traffic
from logbrook.cli.top_screen import shown_number
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import TopicPartition
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker
from tests.unit.cli.pseudo_terminal import PseudoTerminal

LOGBROOK = Path(sys.executable).parent / "logbrook"
# Without a time they never get too old.
BATCH = build_batch([Record(value=b"x" * 100)] * 10)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LOGBROOK, "top", *arguments], capture_output=True, text=True, check=False)


def topics_of(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["topic"]: one for one in view["topics"]}


def test_one_table_has_topics_sizes_groups_and_lag() -> None:
    with Broker({"orders": 3, "clicks": 1}) as broker, Client(broker.bootstrap_servers) as client:
        client.produce("orders", 0, BATCH)
        broker_id, data = client.metadata([]).brokers[0].node_id, broker.data
        Admin(client).cluster.commit("billing", {TopicPartition("orders", 0): 4})
        done = run("--once", "--interval", "0.1", "-b", broker.bootstrap_servers)
        assert (done.returncode, done.stderr) == (0, "")
        orders = next(line for line in done.stdout.splitlines() if line.startswith("orders"))
        assert orders.split()[1] == "3"
        assert "iB free" in done.stdout.splitlines()[1]
        billing = next(line for line in done.stdout.splitlines() if line.startswith("billing"))
        assert billing.split()[-1] == "6"
        view = json.loads(run("--once", "--json", "--interval", "0.1", "-b", broker.bootstrap_servers).stdout)
    orders_form = topics_of(view)["orders"]
    assert (orders_form["records"], orders_form["partitions"], orders_form["in_records_per_s"]) == (10, 3, 0)
    assert orders_form["out_records_per_s"] is None
    assert view["groups"] == [{"group": "billing", "state": "Empty", "topics": 1, "lag": 6, "read_per_s": 0}]
    assert (view["error"], view["metrics"], view["brokers"]) == (None, False, 1)
    (disk,) = view["disks"]
    assert (disk["broker"], disk["path"]) == (broker_id, data)
    assert 0 < disk["usable_bytes"] < disk["total_bytes"]


def test_json_streams_a_line_for_each_look_with_what_goes_in_and_out() -> None:
    settings = {"metrics": {"listen": "127.0.0.1:0"}}
    with Broker(["orders"], settings=settings) as broker, Client(broker.bootstrap_servers) as client:
        address = broker._running.http_address
        assert address is not None
        arguments = ["--json", "--interval", "0.1", "--metrics", "http://{}:{}/metrics".format(*address)]
        command = [str(LOGBROOK), "top", *arguments, "-b", broker.bootstrap_servers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            seen_in = seen_out = 0.0
            for line in process.stdout:
                view = json.loads(line)
                orders = topics_of(view)["orders"]
                assert view["metrics"] is True
                seen_in = max(seen_in, orders["in_records_per_s"])
                seen_out = max(seen_out, orders["out_bytes_per_s"])
                if seen_in and seen_out:
                    break
                client.produce("orders", 0, BATCH)
                client.fetch("orders", 0, 0)
            # Whoever reads has had enough, and that is no error.
            process.stdout.close()
            assert process.wait() == 0


def test_the_screen_fits_and_keys_sort_pause_and_quit() -> None:
    with (
        Broker({f"topic-{number:02}": 1 for number in range(40)}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        client.produce("topic-39", 0, BATCH)
        Admin(client).cluster.commit("billing", {TopicPartition("topic-39", 0): 4})
        with PseudoTerminal("top", "--interval", "0.1", "-b", broker.bootstrap_servers) as terminal:
            terminal.wait_for(r"(?s)topic-00 .*billing +Empty")
            terminal.type("7")
            terminal.wait_for(r"RECORDS▼")
            terminal.forget()
            terminal.wait_for(r"(?s)RECORDS▼\s+SIZE\s+topic-39 ")
            terminal.type("r")
            terminal.wait_for("RECORDS▲")
            terminal.type("s")
            terminal.wait_for("SIZE▼")
            terminal.type("p")
            terminal.wait_for("PAUSED")
            terminal.type("q")
            assert terminal.end() == 0
            frames = terminal.frames
            assert max(len(frame) for frame in frames) <= 24
            assert max(len(line) for frame in frames for line in frame) <= 80
            assert any("more" in line for line in frames[-1])
            # The screen that was there before is back, with its cursor.
            assert "\x1b[?1049l" in terminal.raw
            assert "\x1b[?25h" in terminal.raw


def test_ctrl_c_leaves_the_screen_as_it_was() -> None:
    with (
        Broker(["orders"]) as broker,
        PseudoTerminal("top", "--interval", "0.1", "-b", broker.bootstrap_servers) as terminal,
    ):
        terminal.wait_for("orders")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "\x1b[?1049l" in terminal.raw
        assert "Traceback" not in terminal.text


def test_a_broker_that_goes_away_and_comes_back_is_waited_for(tmp_path: Path) -> None:
    with Broker(["orders"], data=str(tmp_path)) as broker:
        servers = broker.bootstrap_servers
        terminal = PseudoTerminal("top", "--interval", "0.1", "-b", servers)
    with terminal:
        terminal.wait_for("cannot connect|is closed")
        with Broker(data=str(tmp_path), settings={"network": {"listen": servers}}) as again:
            terminal.wait_for("trying again")
            terminal.forget()
            terminal.wait_for(r"in 0/s")
            again.create_topic("new-topic")
            terminal.wait_for("new-topic")
        terminal.type("q")
        assert terminal.end() == 0


def test_without_a_terminal_it_says_what_to_do() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "--once prints one table" in done.stderr


def test_one_table_of_a_cluster_that_is_not_there_is_an_error() -> None:
    done = run("--once", "-b", "127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: cannot connect to 127.0.0.1:9")
    assert len(done.stderr.splitlines()) == 1


def test_metrics_of_another_broker_are_not_taken_for_this_ones() -> None:
    text = (
        'logbrook_topic_in_bytes_total{topic="a"} 5\n'
        'logbrook_partition_high_watermark{topic="__cluster_metadata",partition="0"} 3\n'
        'logbrook_partition_high_watermark{topic="a",partition="0"} 1\n'
    )
    traffic = parse_traffic(text)
    assert traffic.by_topic == {"a": {"in_bytes": 5.0}}
    assert traffic.is_of([TopicPartition("a", 0)])
    assert not traffic.is_of([TopicPartition("a", 0), TopicPartition("a", 1)])
    assert not traffic.is_of([])


@pytest.mark.parametrize(
    ("number", "shown"), [(None, "-"), (0, "0"), (999.4, "999"), (1_000, "1.0k"), (123_456, "123k"), (2.5e9, "2.5G")]
)
def test_numbers_are_short(number: float | None, shown: str) -> None:
    assert shown_number(number) == shown
