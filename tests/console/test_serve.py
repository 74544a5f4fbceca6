"""`logbrook serve --console`: the console starts and exits with its broker."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from logbrook.cli.main import app
from logbrook.config import BrokerConfig, MetricsConfig
from logbrook.config.network import ConsoleConfig
from logbrook.config.security import SecurityConfig
from logbrook.model.security import SaslMechanism, SecurityProtocol
from logbrook.server.console_process import ConsoleProcess
from logbrook.testing.processes import free_port
from tests.interop.clients.process import Process
from tests.interop.waiting import wait_until


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_the_console_exits_with_its_broker_even_if_killed(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "logbrook", "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    broker = Process([*command, "--metrics=", "--console", str(free_port())])
    try:
        wait_until(lambda: url_in(broker) is not None, "the start of the console", 60)
        url = url_in(broker)
        assert url is not None
        with urlopen(f"{url}/api/health", timeout=20) as answer:
            assert json.load(answer)["status"] == "ok"
        if how is signal.SIGKILL:
            broker.kill()
        else:
            broker.stop()
            assert broker.return_code == 0
        wait_until(lambda: not answers(url), "the end of the console")
    finally:
        broker.kill()


def url_in(broker: Process) -> str | None:
    """Return the address that the console announced on standard error, if it did."""
    match = re.search(r"http://127\.0\.0\.1:\d+", broker.errors.decode(errors="replace"))
    return None if match is None else match[0]


def test_a_stopping_broker_closes_the_input_of_its_console_and_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_exited = tmp_path / "exited"
    console = tmp_path / "console"
    console.write_text(f"#!/bin/sh\ncat\ntouch {has_exited}\n")
    console.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(console))

    async def start_and_stop() -> None:
        process = ConsoleProcess(BrokerConfig(console=ConsoleConfig(listen="127.0.0.1:0")), {})
        await process.start(("127.0.0.1", 1), None)
        assert not has_exited.exists()
        await process.stop()

    # The output of the console goes to standard error, which must be a file here. While playwright runs, the event loop
    # of this thread does too.
    with (tmp_path / "output").open("w") as output, monkeypatch.context() as context, ThreadPoolExecutor(1) as thread:
        context.setattr(sys, "stderr", output)
        thread.submit(asyncio.run, asyncio.wait_for(start_and_stop(), 20)).result(30)
    assert has_exited.exists()


def test_the_console_of_a_broker_with_sasl_has_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = tmp_path / "arguments"
    console = tmp_path / "console"
    console.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {arguments}.new\nmv {arguments}.new {arguments}\ncat\n')
    console.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(console))
    security = SecurityConfig(
        protocol=SecurityProtocol.SASL_SSL,
        sasl_mechanisms=frozenset({SaslMechanism.SCRAM_SHA_256}),
        certificate="broker.crt",
    )
    settings = ConsoleConfig(
        listen="0.0.0.0:0", url="https://console.example", tls=True, client_config="client.properties"
    )
    config = BrokerConfig(security=security, console=settings, metrics=MetricsConfig(tls=True))

    async def start_and_stop() -> None:
        process = ConsoleProcess(config, {})
        await process.start(("127.0.0.1", 1), ("127.0.0.1", 2))
        while not arguments.exists():
            await asyncio.sleep(0)
        await process.stop()

    with (tmp_path / "output").open("w") as output, monkeypatch.context() as context, ThreadPoolExecutor(1) as thread:
        context.setattr(sys, "stderr", output)
        thread.submit(asyncio.run, asyncio.wait_for(start_and_stop(), 20)).result(30)
    text = " ".join(arguments.read_text().split())
    assert "--metrics https://127.0.0.1:2 --client-config client.properties -X security.protocol=SASL_SSL" in text
    assert "--login -X sasl.mechanism=SCRAM-SHA-256 --url https://console.example" in text
    assert text.endswith("--certificate broker.crt --key broker.crt")


def test_only_a_console_that_was_started_by_a_broker_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    monkeypatch.setattr("logbrook.cli.console.end_with_parent", lambda *arguments: calls.append(arguments))
    # The invalid address ends the command before it starts anything.
    CliRunner().invoke(app, ["console", "--listen", "here"])
    assert calls == []
    CliRunner().invoke(app, ["console", "--listen", "here", "--with-parent"])
    assert calls == [()]


def test_a_broker_refuses_a_public_console_without_a_token(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logbrook", "serve", "--data", str(tmp_path / "data"), "--console", "0.0.0.0:0"]
    environment = {**os.environ, "LOGBROOK_CONSOLE_TOKEN": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 1
    assert "could be reached from other machines" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "listen"),
    [
        (["--console"], "127.0.0.1:9080"),
        (["--console", "--partitions", "3"], "127.0.0.1:9080"),
        (["--console", "8000"], "127.0.0.1:8000"),
        (["--console=[::1]:1"], "[::1]:1"),
        ([], ""),
    ],
)
def test_the_console_flag_alone_means_the_default_address(arguments: list[str], listen: str) -> None:
    done = CliRunner().invoke(app, ["config", "show", "--json", *arguments])
    assert json.loads(done.stdout)["console.listen"]["value"] == listen


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/api/docs", timeout=5):
            return True
    except (URLError, OSError):
        return False
