"""Clusters that are empty, large, or away; and a console that wants a token."""

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker
from tests.console.conftest import Opened

expect.set_options(timeout=15_000)

MILLION = 1_000_000
BATCH = 10_000


def test_every_page_is_a_click_away_and_says_that_the_broker_is_empty(empty_console: str, open_page: Opened) -> None:
    page = open_page(empty_console)
    # There is no metrics port either, which is told with what to do about it.
    expect(page.get_by_text("logbrook console --metrics")).to_be_visible()
    for name, text in {
        "Topics": "There is no topic here.",
        "Groups": "No group has committed anything yet.",
        "Pipelines": "No pipeline has reported yet: logbrook pipeline run FILE starts one",
        "Broker": "Largest partitions",
        "Overview": "There is no topic yet.",
    }.items():
        page.locator(".nav", has_text=name).click()
        expect(page).to_have_title(f"{name} · Logbrook")
        expect(page.get_by_text(text).first).to_be_visible()
    page.locator(".nav", has_text="HTTP API").click()
    expect(page.get_by_role("heading", name="Logbrook HTTP API")).to_be_visible()
    expect(page.get_by_text("/api/topics/{topic}/messages").first).to_be_visible()
    for path, text in {"/topics/none": "There is no topic none.", "/group?id=none": "There is no such group."}.items():
        opened = open_page(empty_console + path)
        expect(opened.get_by_text(text).first).to_be_visible()


def test_of_a_million_messages_only_those_are_read_that_are_shown(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    # Its records are of 2023.
    broker.create_topic("million", settings={"retention.ms": "-1"})
    batch = build_batch([Record(b"%d" % n, b'{"n": %d}' % n, (), 1_700_000_000_000 + n) for n in range(BATCH)])
    for _ in range(MILLION // BATCH):
        client.produce("million", 0, batch)
    page = open_page(f"{console}/topics/million")
    expect(page.locator("#told")).to_have_text("50 shown")
    expect(page.locator("tbody tr").first).to_contain_text(str(MILLION - 1))
    page.get_by_role("button", name="Older").click()
    expect(page.locator("#told")).to_have_text("100 shown")
    for place in ("from=end", "from=start", "from=offset&at=500000", "from=time&at=1700000005000"):
        with urlopen(f"{console}/api/topics/million/messages?{place}") as answer:
            found = json.load(answer)
        assert (len(found["messages"]), found["scanned"]) == (50, 50), place


def test_a_broker_that_goes_away_is_told_of_and_found_again(
    empty_broker: Broker, empty_console: str, open_page: Opened
) -> None:
    empty_broker.create_topic("kept")
    page = open_page(f"{empty_console}/topics")
    expect(page.get_by_role("link", name="kept")).to_be_visible()
    empty_broker.stop()
    try:
        expect(page.locator("#problem")).to_contain_text("is the broker running?")
        expect(page.locator("#state")).to_have_text("no answer")
        # What was known is still there, and what is tried is answered with a sentence.
        page.get_by_role("link", name="kept").click()
        expect(page.locator(".q-notification").first).to_contain_text("cannot connect")
        with pytest.raises(HTTPError) as refused, urlopen(f"{empty_console}/api/health"):
            pass
        with refused.value as answer:
            assert (answer.status, json.load(answer)["error"]["code"]) == (503, "NO_BROKER")
    finally:
        empty_broker.start()
    expect(page.locator("#problem")).to_be_hidden()
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_text("There is no message here.")).to_be_visible()
    with Client(empty_broker.bootstrap_servers) as client:
        Admin(client).topics.delete(["kept"])
    page.goto(f"{empty_console}/topics")
    expect(page.get_by_text("There is no topic here.")).to_be_visible()


def test_a_console_with_a_token_asks_for_it(broker: Broker, guarded_console: str, open_page: Opened) -> None:
    page = open_page(f"{guarded_console}/topics")
    page.get_by_label("The console's token").fill("open barley")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page.get_by_label("The console's token").fill("open sesame")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#state")).to_have_text(broker.bootstrap_servers)
