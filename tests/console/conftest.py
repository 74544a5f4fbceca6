"""Consoles for the browser: real processes, real brokers, and Debian's Chromium driven by playwright.

What takes time is to start a console and to load a page, so all tests share three consoles, which start side by side,
and one browser, which has in its cache what it has loaded once.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, ViewportSize, sync_playwright

from logbrook.client import Client
from logbrook.testing import Broker
from logbrook.testing.kill.free_port import free_port

_NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE: ViewportSize = {"width": 1280, "height": 900}
NARROW: ViewportSize = {"width": 360, "height": 740}


class Starting:
    """A console that starts while something else is done. It ends with its standard input, so that it is gone even if
    the test run is killed."""

    def __init__(self, bootstrap: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "logbrook", "console", "--with-parent", "--bootstrap", bootstrap]
        command += ["--listen", "127.0.0.1:0", "--metrics", "", "--interval-ms", "300", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @cached_property
    def url(self) -> str:
        """Waits until it is there."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"it said {line!r}"
        return found[0]

    def stop(self) -> None:
        """Does not wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def check_end(self) -> None:
        assert self._process.stdout is not None
        code = self._process.wait(20)
        self._process.stdout.close()
        assert code == 0


@pytest.fixture(scope="package")
def metrics() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="package")
def broker(metrics: str) -> Iterator[Broker]:
    """With metrics, as `logbrook serve` has them."""
    with Broker(settings={"metrics": {"listen": metrics}}) as one:
        yield one


@pytest.fixture(scope="package")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as one:
        yield one


@pytest.fixture(scope="package")
def empty_broker() -> Iterator[Broker]:
    """One with nothing in it, whose port stays the same when it is stopped and started again. Whoever puts something
    in takes it out again."""
    with TemporaryDirectory() as data:
        settings = {"network": {"listen": f"127.0.0.1:{free_port()}"}}
        with Broker(data=data, settings=settings) as one:
            yield one


@pytest.fixture(scope="package")
def consoles(broker: Broker, metrics: str, empty_broker: Broker) -> Iterator[dict[str, Starting]]:
    """Those of the fixtures below."""
    started = {
        "plain": Starting(broker.bootstrap_servers, "--metrics", metrics),
        "guarded": Starting(broker.bootstrap_servers, "--token", "open sesame", "--interval-ms", "2000"),
        "empty": Starting(empty_broker.bootstrap_servers, "--metrics", "127.0.0.1:1"),
    }
    yield started
    for one in started.values():
        one.stop()
    for one in started.values():
        one.check_end()


@pytest.fixture(scope="package")
def console(consoles: dict[str, Starting]) -> str:
    """The address of the console of `broker`."""
    return consoles["plain"].url


@pytest.fixture(scope="package")
def guarded_console(consoles: dict[str, Starting]) -> str:
    """The address of one that wants the token `open sesame`."""
    return consoles["guarded"].url


@pytest.fixture(scope="package")
def empty_console(consoles: dict[str, Starting]) -> str:
    """The address of the console of `empty_broker`, which has no metrics."""
    return consoles["empty"].url


# While playwright runs there is a running event loop in this thread, which other folders' tests could not bear.
@pytest.fixture(scope="package")
def context() -> Iterator[BrowserContext]:
    """A browser with a directory for its cache, because only then it keeps scripts compiled from page to page."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip(f"NO BROWSER, SO NOTHING IS PROVEN FOR THE CONSOLE: none of {', '.join(_NAMES)} is installed")
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile, sync_playwright() as playwright:
        one = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu"],
            viewport=WIDE,
            accept_downloads=True,
            reduced_motion="reduce",
        )
        yield one
        one.close()


@dataclass
class Opened:
    """Pages that were opened, and what they asked for and complained of."""

    context: BrowserContext
    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def __call__(self, url: str, *, on_phone: bool = False) -> Page:
        page = self.context.new_page()
        self.pages.append(page)
        page.set_default_timeout(15_000)
        if on_phone:
            page.set_viewport_size(NARROW)
            session = self.context.new_cdp_session(page)
            metrics = {**NARROW, "deviceScaleFactor": 2, "mobile": True}
            session.send("Emulation.setDeviceMetricsOverride", metrics)
            session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))
        page.on("websocket", lambda socket: self.hosts.add(urlsplit(socket.url).hostname or ""))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(url)
        return page

    def check_narrow(self) -> None:
        """Whatever a page shows in the end, a phone need not scroll sideways to see it."""
        for page in self.pages:
            page.set_viewport_size(NARROW)
            page.wait_for_function(f"document.documentElement.scrollWidth <= {NARROW['width']}")


@pytest.fixture
def open_page(context: BrowserContext) -> Iterator[Opened]:
    """Opens pages. Whatever a test does with them, no request goes to another host, no script fails, and what they show
    fits on a phone."""
    opened = Opened(context)
    yield opened
    try:
        opened.check_narrow()
    finally:
        for page in opened.pages:
            page.close()
    # A page that is given its content by the browser itself has no host.
    assert opened.hosts - {""} == {"127.0.0.1"}
    assert opened.complaints == []
