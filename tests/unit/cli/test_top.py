"""`logbrook top`: on a terminal, as one table, as JSON lines; while a broker restarts."""

import json
from pathlib import Path
from typing import Any

import pytest

from logbrook.cli.top_screen import shown_number
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker
from tests.unit.cli.invocation import SECONDS_MAX, invoke
from tests.unit.cli.pseudo_terminal import PseudoTerminal
from tests.unit.cli.shell import Done, Shell

# Without a time they never get too old.
BATCH = build_batch([Record(value=b"x" * 100)] * 10)


def run(*arguments: str) -> Done:
    done = invoke("top", *arguments)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def topics_of(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["topic"]: row for row in view["topics"]}


def test_one_table_has_topics_sizes_groups_and_lag() -> None:
    with Broker({"orders": 3, "clicks": 1}) as broker, Client(broker.bootstrap_servers) as client:
        client.produce("orders", 0, BATCH)
        broker_id, data = client.metadata([]).brokers[0].node_id, broker.data
        Admin(client).cluster.coordinators.commit("billing", {TopicPartition("orders", 0): 4})
        done = run("--once", "--interval", "0.1", "-b", broker.bootstrap_servers)
        assert (done.code, done.err) == (0, "")
        orders = next(line for line in done.out.splitlines() if line.startswith("orders"))
        assert orders.split()[1] == "3"
        assert "iB free" in done.out.splitlines()[1]
        billing = next(line for line in done.out.splitlines() if line.startswith("billing"))
        assert billing.split()[-1] == "6"
        view = json.loads(run("--once", "--json", "--interval", "0.1", "-b", broker.bootstrap_servers).out)
    orders_form = topics_of(view)["orders"]
    assert (orders_form["records"], orders_form["partitions"], orders_form["in_records_per_s"]) == (10, 3, 0)
    assert orders_form["out_records_per_s"] is None
    assert view["groups"] == [{"group": "billing", "state": "Empty", "topics": 1, "lag": 6, "read_per_s": 0}]
    assert (view["error"], view["metrics"], view["brokers"]) == (None, False, 1)
    (disk,) = view["disks"]
    assert (disk["broker"], disk["path"]) == (broker_id, data)
    assert 0 < disk["usable_bytes"] < disk["total_bytes"]


def test_json_streams_a_line_per_sample_with_rates_in_and_out(tmp_path: Path) -> None:
    settings = {"metrics": {"listen": "127.0.0.1:0"}}
    with Broker(["orders"], settings=settings) as broker, Client(broker.bootstrap_servers) as client:
        address = broker._running.http_address
        assert address is not None
        arguments = ["--json", "--interval", "0.1", "--metrics", "http://{}:{}/metrics".format(*address)]
        with Shell(broker.bootstrap_servers, tmp_path).start("top", *arguments) as process:
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
                client.fetch("orders", 0, Offset(0))
            # The reader of the pipe has ended, which is no error.
            process.stdout.close()
            assert process.wait(SECONDS_MAX) == 0


def test_the_screen_fits_and_keys_sort_pause_and_quit() -> None:
    with (
        Broker({f"topic-{number:02}": 1 for number in range(40)}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        client.produce("topic-39", 0, BATCH)
        Admin(client).cluster.coordinators.commit("billing", {TopicPartition("topic-39", 0): 4})
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
            # The previous screen and its cursor are restored.
            assert "\x1b[?1049l" in terminal.raw
            assert "\x1b[?25h" in terminal.raw


def test_ctrl_c_restores_the_screen() -> None:
    with (
        Broker(["orders"]) as broker,
        PseudoTerminal("top", "--interval", "0.1", "-b", broker.bootstrap_servers) as terminal,
    ):
        terminal.wait_for("orders")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "\x1b[?1049l" in terminal.raw
        assert "Traceback" not in terminal.text


def test_top_keeps_running_while_the_broker_restarts(tmp_path: Path) -> None:
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


def test_without_a_terminal_the_error_names_the_option() -> None:
    done = run()
    assert (done.code, done.out) == (2, "")
    assert "--once prints one table" in done.err


def test_once_with_an_unreachable_cluster_is_an_error() -> None:
    done = run("--once", "-b", "127.0.0.1:9")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: cannot connect to 127.0.0.1:9")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "shown"), [(None, "-"), (0, "0"), (999.4, "999"), (1_000, "1.0k"), (123_456, "123k"), (2.5e9, "2.5G")]
)
def test_numbers_are_short(number: float | None, shown: str) -> None:
    assert shown_number(number) == shown
