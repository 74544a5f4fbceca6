"""Clusters that are empty, large, or away; and a console that wants a token."""

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

from logbrook.client import Client
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker
from logbrook.testing.kill.free_port import free_port
from tests.console.conftest import Opened, running_console

MILLION = 1_000_000
BATCH = 10_000


def test_an_empty_broker_says_so_on_every_page(open_page: Opened) -> None:
    with Broker() as broker, running_console(broker.bootstrap_servers, "--metrics", "127.0.0.1:1") as console:
        page = open_page(console.url)
        expect(page.get_by_text("There is no topic yet.")).to_be_visible()
        # There is no metrics port either, which is told with what to do about it.
        expect(page.get_by_text("logbrook console --metrics")).to_be_visible(timeout=15_000)
        for path, text in {
            "/topics": "There is no topic here.",
            "/topics/none": "There is no topic none.",
            "/groups": "No group has committed anything yet.",
            "/group?id=none": "There is no such group.",
            "/pipelines": "No pipeline has committed anything yet",
            "/broker": "Largest partitions",
        }.items():
            page.goto(console.url + path)
            expect(page.get_by_text(text).first).to_be_visible(timeout=15_000)


def test_of_a_million_messages_only_those_are_read_that_are_shown(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("million")
    batch = build_batch([Record(b"%d" % n, b'{"n": %d}' % n, (), 1_700_000_000_000 + n) for n in range(BATCH)])
    for _ in range(MILLION // BATCH):
        client.produce("million", 0, batch)
    page = open_page(f"{console}/topics/million")
    expect(page.locator("#told")).to_have_text("50 shown", timeout=15_000)
    expect(page.locator("tbody tr").first).to_contain_text(str(MILLION - 1))
    page.get_by_role("button", name="Older").click()
    expect(page.locator("#told")).to_have_text("100 shown")
    for place in ("from=end", "from=start", "from=offset&at=500000", "from=time&at=1700000005000"):
        with urlopen(f"{console}/api/topics/million/messages?{place}") as answer:
            found = json.load(answer)
        assert (len(found["messages"]), found["scanned"]) == (50, 50), place


def test_a_broker_that_goes_away_is_told_of_and_found_again(tmp_path: Path, open_page: Opened) -> None:
    settings = {"network": {"listen": f"127.0.0.1:{free_port()}"}}
    broker = Broker({"kept": 1}, data=str(tmp_path / "data"), settings=settings)
    with broker, running_console(broker.bootstrap_servers) as console:
        page = open_page(f"{console.url}/topics")
        expect(page.get_by_role("link", name="kept")).to_be_visible(timeout=15_000)
        broker.stop()
        expect(page.locator("#problem")).to_contain_text("is the broker running?", timeout=15_000)
        expect(page.locator("#state")).to_have_text("no answer")
        # What was known is still there, and what is tried is answered with a sentence.
        page.get_by_role("link", name="kept").click()
        expect(page.locator(".q-notification").first).to_contain_text("cannot connect", timeout=15_000)
        with pytest.raises(HTTPError) as refused, urlopen(f"{console.url}/api/health"):
            pass
        with refused.value as answer:
            assert (answer.status, json.load(answer)["error"]["code"]) == (503, "NO_BROKER")
        broker.start()
        expect(page.locator("#problem")).to_be_hidden(timeout=15_000)
        page.get_by_role("button", name="Read", exact=True).click()
        expect(page.get_by_text("There is no message here.")).to_be_visible()


def test_a_console_with_a_token_asks_for_it(broker: Broker, guarded_console: str, open_page: Opened) -> None:
    page = open_page(f"{guarded_console}/topics", viewport={"width": 600, "height": 400})
    page.get_by_label("The console's token").fill("open barley")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page.get_by_label("The console's token").fill("open sesame")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#state")).to_have_text(broker.bootstrap_servers, timeout=15_000)
