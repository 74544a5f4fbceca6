"""Consoles for the browser: real processes, real brokers, and Debian's Chromium driven by playwright.

The time goes into importing the console's libraries, starting a browser and loading pages. All tests therefore share
five consoles forked from one process (`forked_consoles.py`), one browser and one tab.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    ViewportSize,
    WebSocket,
    sync_playwright,
)

from logbrook.client import Client
from logbrook.core.acls import AclOperation, ResourceType
from logbrook.testing import Broker, Cluster
from logbrook.testing.processes import free_port
from tests.security_kit import allow, security_settings
from tests.unit.server.http_kit import Served

_NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE: ViewportSize = {"width": 1280, "height": 900}
NARROW: ViewportSize = {"width": 360, "height": 740}
_ROOT = Path(__file__).parent.parent.parent
_START_S_MAX = 60.0
_STOP_S_MAX = 20.0


class ForkedConsoles:
    """The process that runs the consoles. It ends with its standard input, and so also when the test run is killed."""

    def __init__(self, consoles: Sequence[Sequence[str]]) -> None:
        """Start one console for each list of command line arguments; returns before they listen."""
        common = ["--with-parent", "--interval-ms", "300"]
        arguments = json.dumps([[*common, *console] for console in consoles])
        self._count = len(consoles)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.console.forked_consoles", arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Raises TimeoutError if one of the consoles does not announce its address."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        deadline = monotonic() + _START_S_MAX
        announced = b""
        while announced.count(b"the console is at") < self._count:
            if not poll.poll(1000 * max(0.0, deadline - monotonic())):
                raise TimeoutError(f"{self._count} consoles did not start in {_START_S_MAX:.0f} s: {announced!r}")
            data = os.read(descriptor, 4096)
            assert data, f"a console exited during its start: {announced!r}"
            announced += data

    def stop(self) -> None:
        """Raises AssertionError if a console does not exit with status 0."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_STOP_S_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_STOP_S_MAX)
            self._process.stdout.close()
        assert code == 0


@pytest.fixture(scope="package")
def metrics() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="package")
def broker(metrics: str) -> Iterator[Broker]:
    """A broker with metrics, as `logbrook serve` has them."""
    with Broker(settings={"metrics": {"listen": metrics}}) as started:
        yield started


@pytest.fixture(scope="package")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(scope="package")
def empty_broker() -> Iterator[Broker]:
    """A broker without topics that keeps its port when it is restarted. A test that adds topics deletes them."""
    with TemporaryDirectory() as data:
        settings = {"network": {"listen": f"127.0.0.1:{free_port()}"}}
        with Broker(data=data, settings=settings) as started:
            yield started


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Three brokers in different racks. A test that kills a broker restarts it."""
    with Cluster(nodes=3, racks=["a", "b", "c"], lease_s=2.0) as started:
        yield started


@pytest.fixture(scope="package")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with SASL and ACLs: admin may do everything, alice may read and write the topic orders."""
    folder = tmp_path_factory.mktemp("secured")
    security = security_settings(folder, protocol="SASL_PLAINTEXT")
    with Served(folder / "data", {"security": security}) as served:
        for topic in ("orders", "payments"):
            served.create_topic(topic)
        for operation in (AclOperation.READ, AclOperation.WRITE):
            served.call(allow(served.broker.services, "alice", operation, ResourceType.TOPIC, "orders"))
        yield served


@pytest.fixture(scope="package")
def consoles(
    broker: Broker, metrics: str, empty_broker: Broker, cluster: Cluster, secured_broker: Served
) -> Iterator[dict[str, str]]:
    """The addresses of the consoles that the fixtures below name."""
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("plain", "guarded", "empty", "clustered", "login")}
    plain, guarded, empty, clustered, login = (("--listen", address) for address in addresses.values())
    secured = ("--bootstrap", secured_broker.bootstrap_servers, "--metrics", "")
    running = ForkedConsoles(
        [
            (*plain, "--bootstrap", broker.bootstrap_servers, "--metrics", metrics),
            (*guarded, "--bootstrap", broker.bootstrap_servers, "--metrics", "", "--token", "open sesame"),
            (*empty, "--bootstrap", empty_broker.bootstrap_servers, "--metrics", "127.0.0.1:1"),
            (*clustered, "--bootstrap", cluster.bootstrap_servers, "--metrics", ""),
            (*login, *secured, "--login", "--url", "https://console.example", "-X", "sasl.mechanism=SCRAM-SHA-256"),
        ]
    )
    try:
        running.wait_until_ready()
        yield {name: f"http://{address}" for name, address in addresses.items()}
    finally:
        running.stop()


@pytest.fixture(scope="package")
def console(consoles: dict[str, str]) -> str:
    """The address of the console of `broker`."""
    return consoles["plain"]


@pytest.fixture(scope="package")
def guarded_console(consoles: dict[str, str]) -> str:
    """The address of a console that requires the token `open sesame`."""
    return consoles["guarded"]


@pytest.fixture(scope="package")
def empty_console(consoles: dict[str, str]) -> str:
    """The address of the console of `empty_broker`, which has no metrics."""
    return consoles["empty"]


@pytest.fixture(scope="package")
def cluster_console(consoles: dict[str, str]) -> str:
    """The address of the console of `cluster`."""
    return consoles["clustered"]


@pytest.fixture(scope="package")
def login_console(consoles: dict[str, str]) -> str:
    """The address of the console of `secured_broker`, where users sign in."""
    return consoles["login"]


# Playwright runs an event loop in this thread, with which tests of other folders would fail.
@pytest.fixture(scope="package")
def context(consoles: dict[str, str]) -> Iterator[BrowserContext]:
    """A browser with a directory for its cache, because only then it keeps scripts compiled from page to page.

    It is closed before the consoles, which would wait for its websockets.
    """
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip(f"no browser, so the console's pages are not tested: none of {', '.join(_NAMES)} is installed")
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile, sync_playwright() as playwright:
        persistent = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=path,
            # Without optimizing compilers, which do not pay for pages that are open for seconds.
            args=["--no-sandbox", "--disable-gpu", "--in-process-gpu", "--js-flags=--no-opt,--no-maglev"],
            viewport=WIDE,
            accept_downloads=True,
            reduced_motion="reduce",
        )
        persistent.set_default_timeout(15_000)
        yield persistent
        persistent.close()


@dataclass
class Opened:
    """Opens pages and records the hosts they send requests to, script errors and violations of the security policy.

    Pages are opened in the browser's first tab, which costs half as much as a new one; those of a phone in a tab of
    their own.
    """

    context: BrowserContext
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    tabs: list[Page] = field(default_factory=list)

    def __call__(self, url: str, *, on_phone: bool = False) -> Page:
        tab = self._phone() if on_phone else self.context.pages[0]
        if tab not in self.tabs:
            self.tabs.append(tab)
            tab.on("request", self._add_host)
            tab.on("websocket", self._add_host)
            tab.on("pageerror", self._add_error)
            tab.on("console", self._add_violation)
        tab.goto(url)
        return tab

    def check_narrow(self) -> None:
        """Check that the last page of each tab fits a phone without scrolling sideways."""
        for tab in self.tabs:
            tab.set_viewport_size(NARROW)
            tab.wait_for_function(f"document.documentElement.scrollWidth <= {NARROW['width']}")

    def close(self) -> None:
        """Close the tabs of phones, and reset the first tab for the next test."""
        for tab in self.tabs:
            tab.remove_listener("request", self._add_host)
            tab.remove_listener("websocket", self._add_host)
            tab.remove_listener("pageerror", self._add_error)
            tab.remove_listener("console", self._add_violation)
            if tab is self.context.pages[0]:
                tab.set_viewport_size(WIDE)
            else:
                tab.close()

    def _phone(self) -> Page:
        tab = self.context.new_page()
        tab.set_viewport_size(NARROW)
        session = self.context.new_cdp_session(tab)
        session.send("Emulation.setDeviceMetricsOverride", {**NARROW, "deviceScaleFactor": 2, "mobile": True})
        session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
        return tab

    def _add_host(self, traffic: Request | WebSocket) -> None:
        self.hosts.add(urlsplit(traffic.url).hostname or "")

    def _add_error(self, error: Error) -> None:
        self.errors.append(str(error))

    def _add_violation(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.errors.append(message.text)


@pytest.fixture
def open_page(context: BrowserContext) -> Iterator[Opened]:
    """Opens pages. Afterwards: no request went to another host, no script failed, the content security policy was not
    violated, and the pages fit a phone.
    """
    opened = Opened(context)
    yield opened
    try:
        opened.check_narrow()
    finally:
        opened.close()
    # A page that is given its content by the browser itself has no host.
    assert opened.hosts - {""} == {"127.0.0.1"}
    assert opened.errors == []
