"""Empty, large and stopped clusters, and a console with a token."""

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

RECORDS = 200_000
BATCH = 10_000


def test_every_page_is_linked_and_handles_an_empty_broker(empty_console: str, open_page: Opened) -> None:
    page = open_page(empty_console)
    # Without a metrics port, a hint says how to name one.
    expect(page.get_by_text("logbrook console --metrics")).to_be_visible()
    for name, text in {
        "Topics": "There is no topic yet. Create one here, or with logbrook topic create NAME",
        "Groups": "There are no groups yet. A consumer's group appears here",
        "Pipelines": "No pipeline has reported yet: logbrook pipeline run FILE starts one",
        "Broker": "Largest partitions",
        "Overview": "There is no topic yet. Create one on the page Topics",
    }.items():
        page.locator(".nav", has_text=name).click()
        expect(page).to_have_title(f"{name} · Logbrook")
        expect(page.get_by_text(text).first).to_be_visible()
        expect(page.locator("h1")).to_have_text([name])
        expect(page.locator("html")).to_have_attribute("lang", "en-US")
    page.locator(".nav", has_text="HTTP API").click()
    expect(page.get_by_role("heading", name="Logbrook HTTP API")).to_be_visible()
    expect(page.get_by_text("/api/topics/{topic}/messages").first).to_be_visible()
    for path, text in {
        "/topics/none": "There is no topic none.",
        "/groups/none": "There is no such group.",
        "/group?id=none": "There is no such group.",
        "/nowhere/at/all": "Nothing is at /nowhere/at/all.",
        "/<script>alert(1)</script>": "Nothing is at /<script>alert(1)</script>.",
    }.items():
        opened = open_page(empty_console + path)
        expect(opened.get_by_text(text).first).to_be_visible()
        expect(opened.locator(".nav", has_text="Topics")).to_be_visible()
        # The text is all: no errors above it, and nothing to press that would cause one.
        expect(opened.locator(".q-notification")).to_have_count(0)
        expect(opened.locator("main, .nicegui-content").locator("button:visible, [role=tab]:visible")).to_have_count(0)


def test_only_the_shown_messages_of_a_large_topic_are_read(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    # Its records have timestamps of 2023.
    broker.create_topic("large", settings={"retention.ms": "-1"})
    batch = build_batch([Record(b"%d" % n, b'{"n": %d}' % n, (), 1_700_000_000_000 + n) for n in range(BATCH)])
    for _ in range(RECORDS // BATCH):
        client.produce("large", 0, batch)
    page = open_page(f"{console}/topics/large")
    expect(page.locator("#status")).to_have_text("50 shown")
    expect(page.locator("tbody tr").first).to_contain_text(str(RECORDS - 1))
    page.get_by_role("button", name="Older").click()
    expect(page.locator("#status")).to_have_text("100 shown")
    for place in ("from=end", "from=start", "from=offset&at=100000", "from=time&at=1700000005000"):
        with urlopen(f"{console}/api/topics/large/messages?{place}") as answer:
            fetched = json.load(answer)
        assert (len(fetched["messages"]), fetched["scanned"]) == (50, 50), place


def test_a_stopped_broker_is_reported_and_reconnected(
    empty_broker: Broker, empty_console: str, open_page: Opened
) -> None:
    empty_broker.create_topic("kept")
    page = open_page(f"{empty_console}/topics")
    expect(page.get_by_role("link", name="kept")).to_be_visible()
    empty_broker.stop()
    try:
        expect(page.locator("#problem")).to_contain_text("is the broker running?")
        expect(page.locator("#state")).to_have_text("no answer")
        # The last state is still shown, and actions are answered with an error message.
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
    expect(page.get_by_text("There is no topic yet.")).to_be_visible()


def test_a_console_with_a_token_asks_for_it(broker: Broker, guarded_console: str, open_page: Opened) -> None:
    page = open_page(f"{guarded_console}/topics")
    page.get_by_label("The console's token").fill("open barley")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page.get_by_label("The console's token").fill("open sesame")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#state")).to_have_text(broker.bootstrap_servers)
