"""A console for the browser: the real process, a real broker, and Debian's Chromium driven by playwright."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from logbrook.client import Client
from logbrook.testing import Broker
from logbrook.testing.kill.free_port import free_port

_NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE: ViewportSize = {"width": 1280, "height": 900}


@dataclass
class Running:
    """A console's process and where it is."""

    url: str
    process: "subprocess.Popen[str]"


@contextmanager
def running_console(bootstrap: str, *arguments: str) -> Iterator[Running]:
    """It ends with its standard input, so that it is gone even if the test run is killed."""
    command = [sys.executable, "-m", "logbrook", "console", "--with-parent", "--bootstrap", bootstrap]
    command += ["--listen", "127.0.0.1:0", "--metrics", "", "--interval-ms", "300", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"it said {line!r}"
        yield Running(found[0], process)
    finally:
        process.stdin.close()
        code = process.wait(20)
        process.stdout.close()
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
def console(broker: Broker, metrics: str) -> Iterator[str]:
    """The address of the console of `broker`."""
    with running_console(broker.bootstrap_servers, "--metrics", metrics) as one:
        yield one.url


@pytest.fixture(scope="package")
def guarded_console(broker: Broker) -> Iterator[str]:
    """The address of one that wants the token `open sesame`."""
    with running_console(broker.bootstrap_servers, "--token", "open sesame") as one:
        yield one.url


# While playwright runs there is a running event loop in this thread, which other folders' tests could not bear.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip(f"NO BROWSER, SO NOTHING IS PROVEN FOR THE CONSOLE: none of {', '.join(_NAMES)} is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """For the pages that need nothing special: what one of them has loaded, the next has."""
    with browser.new_context(viewport=WIDE, accept_downloads=True) as one:
        yield one


@dataclass
class Opened:
    """Pages that were opened, and what they asked for and complained of."""

    browser: Browser
    context: BrowserContext
    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    closing: list[Callable[[], Any]] = field(default_factory=list)

    def __call__(self, url: str, **options: Any) -> Page:
        context = self.browser.new_context(**options) if options else self.context
        page = context.new_page()
        self.closing.append(context.close if options else page.close)
        page.set_default_timeout(15_000)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))
        page.on("websocket", lambda socket: self.hosts.add(urlsplit(socket.url).hostname or ""))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(url)
        return page


@pytest.fixture
def open_page(browser: Browser, context: BrowserContext) -> Iterator[Opened]:
    """Opens pages. Whatever a test does, no request goes to another host, and no script fails."""
    opened = Opened(browser, context)
    yield opened
    for close in opened.closing:
        close()
    # A page that is given its content by the browser itself has no host.
    assert opened.hosts - {""} == {"127.0.0.1"}
    assert opened.complaints == []
