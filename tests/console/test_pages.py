"""Each page and each action, in a real browser."""

import json
import re
from dataclasses import replace
from pathlib import Path
from time import time

from playwright.sync_api import Page, expect

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.group_member import GroupMember
from logbrook.model import TopicPartition
from logbrook.pipelines.report import REPORTS_TOPIC, Report, RunState, SinkReport, SourceReport
from logbrook.pipelines.reports_topic import write_report
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker
from tests.console.conftest import Opened

expect.set_options(timeout=15_000)


def write(client: Client, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    """Records with a number in key and value, a millisecond apart."""
    now_ms = round(time() * 1000)
    records = [
        Record(f"key-{n}".encode(), json.dumps({"number": n}).encode(), (("origin", b"test"),), now_ms + n)
        for n in range(first, first + count)
    ]
    client.produce(topic, partition, build_batch(records))


def shows(page: Page, text: str) -> None:
    expect(page.get_by_text(text).first).to_be_visible()


def notices(page: Page, text: str) -> None:
    expect(page.locator(".q-notification").filter(has_text=text).first).to_be_visible()


def rows(page: Page) -> list[list[str]]:
    return [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]


def test_the_overview_shows_what_goes_through(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("busy", 2)
    page = open_page(console)
    write(client, "busy", 300)
    expect(page.get_by_role("row").filter(has_text="busy")).to_contain_text("300")
    write(client, "busy", 300, partition=1)
    expect(page.get_by_role("row").filter(has_text="busy")).to_contain_text("600")
    expect(page.locator("canvas")).to_have_count(2)
    # The metrics port answers, so nobody has to be told how to name it.
    expect(page.get_by_text("logbrook console --metrics")).to_be_hidden()
    expect(page.locator("#state")).to_have_text(broker.bootstrap_servers)


def test_a_topic_is_made_changed_and_deleted_after_a_question(client: Client, console: str, open_page: Opened) -> None:
    page = open_page(f"{console}/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_role("button", name="Create", exact=True).click()
    notices(page, "a topic needs a name")
    page.get_by_label("Name", exact=True).fill("made here")
    page.get_by_role("button", name="Create", exact=True).click()
    notices(page, "creating topic made here")
    page.get_by_label("Name", exact=True).fill("made-here")
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Other settings").fill("retention.ms=60000")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page).to_have_url(f"{console}/topics/made-here")

    page.get_by_role("tab", name="Settings").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="retention.ms", exact=True))
    expect(row).to_contain_text("60000")
    page.get_by_label("Change retention.ms", exact=True).click()
    page.get_by_label("Value", exact=True).fill("a week")
    page.get_by_role("button", name="Set", exact=True).click()
    notices(page, "changing the settings of topic made-here")
    page.get_by_label("Change retention.ms", exact=True).click()
    page.get_by_label("Value", exact=True).fill("120000")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_contain_text("120000")

    page.get_by_role("tab", name="Partitions").click()
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_label("How many in all").fill("5")
    page.get_by_role("button", name="Add", exact=True).click()
    notices(page, "made-here has 5 partitions")
    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Cancel").click()
    assert "made-here" in Admin(client).topics.names()
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label("Type made-here to go on").fill("made-here")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page).to_have_url(f"{console}/topics")
    assert "made-here" not in Admin(client).topics.names()


def test_messages_are_read_from_every_place_and_found(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("read")
    write(client, "read", 120)
    page = open_page(f"{console}/topics/read")
    told = page.locator("#told")
    expect(told).to_have_text("50 shown")
    assert [row[2] for row in rows(page)] == [str(n) for n in range(119, 69, -1)]
    page.get_by_role("button", name="Older").click()
    expect(told).to_have_text("100 shown")
    page.get_by_role("button", name="Older").click()
    expect(told).to_have_text("120 shown; that is all there is")

    def choose(place: str) -> None:
        page.get_by_label("From").click()
        page.get_by_role("option", name=place, exact=True).click()

    choose("Start")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("key-0")
    choose("Offset")
    page.get_by_label("Offset", exact=True).fill("ten")
    page.get_by_role("button", name="Read", exact=True).click()
    notices(page, "'ten' is no offset")
    page.get_by_label("Offset", exact=True).fill("100")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(told).to_have_text("20 shown; that is all there is")
    choose("Time")
    page.get_by_label("2026-01-31T12:00 (UTC)").fill("2020-01-01")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("key-0")

    page.get_by_label("Search in key, value and headers").fill("KEY-11")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(told).to_have_text("11 shown; 120 searched; that is all there is")
    page.get_by_label("Search in key, value and headers").fill("nowhere to be found")
    page.get_by_role("button", name="Read", exact=True).click()
    shows(page, "There is no message here.")
    page.get_by_label("Partition", exact=True).fill("7")
    page.get_by_role("button", name="Read", exact=True).click()
    notices(page, "there is no such topic or partition")


def test_a_message_is_produced_shown_in_every_form_and_downloaded(
    broker: Broker, client: Client, console: str, open_page: Opened, tmp_path: Path
) -> None:
    broker.create_topic("written", 2)
    page = open_page(f"{console}/topics/written")
    shows(page, "There is no message here.")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key", exact=True).fill("k")
    dialog.get_by_label("Value").fill('{"price": 12, "what": "Brühwurst"}')
    dialog.get_by_label("Headers").fill("from=a browser")
    dialog.get_by_label("Partition").fill("9")
    dialog.get_by_role("button", name="Send").click()
    notices(page, "partition 9 does not exist: written has 2")
    dialog.get_by_label("Partition").fill("1")
    dialog.get_by_role("button", name="Send").click()
    notices(page, "Written to partition 1 at offset 0.")
    expect(dialog).to_have_count(0)
    fetched = client.fetch("written", 1, 0)
    assert b"Br\xc3\xbchwurst" in bytes(fetched.records)

    page.locator("tbody tr").first.click()
    shown = page.get_by_role("dialog")
    expect(shown).to_contain_text('"price": 12,\n')
    expect(shown).to_contain_text("from: a browser")
    shown.get_by_role("button", name="Hex").click()
    expect(shown).to_contain_text("00000000  7b 22 70 72")
    shown.get_by_role("button", name="Text").click()
    expect(shown).to_contain_text('{"price": 12, "what": "Brühwurst"}')
    with page.expect_download() as value:
        shown.get_by_role("button", name="Download the value").click()
    assert value.value.path().read_bytes().startswith(b'{"price": 12')
    shown.get_by_label("Close").click()
    with page.expect_download() as lines:
        page.get_by_role("button", name="Download", exact=True).click()
    (line,) = lines.value.path().read_text().splitlines()
    assert json.loads(line)["headers"] == [{"name": "from", "value": "a browser"}]


def test_the_live_view_shows_what_comes(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("tail")
    write(client, "tail", 5)
    page = open_page(f"{console}/topics/tail")
    expect(page.locator("#told")).to_have_text("5 shown; that is all there is")
    page.get_by_role("switch", name="Live").click()
    expect(page.locator("#told")).to_have_text("Waiting for messages …")
    write(client, "tail", 1, first=77)
    expect(page.locator("tbody tr").first).to_contain_text("key-77")
    write(client, "tail", 1, first=78)
    expect(page.locator("tbody tr").first).to_contain_text("key-78")
    assert len(rows(page)) == 2
    Admin(client).topics.delete(["tail"])
    notices(page, "there is no such topic or partition")
    expect(page.get_by_role("switch", name="Live")).not_to_be_checked()


def test_a_group_shows_its_members_and_lag_and_is_reset_and_deleted(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("consumed")
    write(client, "consumed", 40)
    with Client(broker.bootstrap_servers, client_id="reader-one") as own:
        member = GroupMember(own, "readers/of it", ["consumed"])
        member.join()
        member.commit({TopicPartition("consumed", 0): 30})
        page = open_page(f"{console}/groups")
        expect(page.get_by_role("row").filter(has_text="readers/of it")).to_contain_text("Stable")
        page.get_by_role("link", name="readers/of it").click()
        expect(page.get_by_role("row").filter(has_text="consumed-0").first).to_contain_text("reader-one")
        expect(page.locator("canvas")).to_have_count(1)
        page.get_by_role("button", name="Delete group").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        notices(page, "it has active members; stop them first")
        member.leave()
    expect(page.get_by_text("Nobody is in it just now.")).to_be_visible()

    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("To", exact=True).click()
    page.get_by_role("option", name="an offset").click()
    page.get_by_label(re.compile("Offset, or time")).fill("12")
    page.get_by_role("button", name="Show what changes").click()
    shows(page, "consumed-0: 30 → 12")
    page.get_by_role("button", name="Reset", exact=True).click()
    notices(page, "The offsets of readers/of it are reset.")
    expect(page.get_by_role("row").filter(has_text="consumed-0").first).to_contain_text("28")
    page.get_by_role("button", name="Delete group").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete group").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page).to_have_url(f"{console}/groups")
    assert "readers/of it" not in [one.group_id for one in Admin(client).groups.all()]


def test_a_pipeline_that_reports_is_shown_with_all_that_it_says(
    client: Client, console: str, open_page: Opened
) -> None:
    now_ms = round(time() * 1000)
    running = Report(
        pipeline="revenue",
        state=RunState.RUNNING,
        since_ms=now_ms - 60_000,
        said_ms=now_ms,
        interval_ms=60_000,
        host="spark-1",
        pid=4711,
        version="1",
        sinks=(SinkReport("revenue-live", 12_000, 250.0, 7, 0.8, now_ms),),
        sources=(SourceReport("orders", 1_234),),
    )

    def say(report: Report) -> None:
        write_report(client, REPORTS_TOPIC, report.pipeline, report.to_json())

    say(replace(running, said_ms=now_ms - 5_000, sources=()))
    say(running)
    say(replace(running, pipeline="killed", said_ms=now_ms - 3_600_000))
    page = open_page(f"{console}/pipelines?name=revenue")
    row = page.get_by_role("row").filter(has_text="spark-1:4711").filter(has_text="revenue")
    for text in ("running", "250", "1,234", "0.8 s"):
        expect(row).to_contain_text(text)
    expect(page.get_by_role("row").filter(has_text="killed")).to_contain_text("lost")
    expect(page.get_by_role("row").filter(has_text="revenue-live")).to_contain_text("12,000")
    expect(page.locator("canvas")).to_have_count(2)
    say(replace(running, state=RunState.FAILED, error="query 'revenue-live' failed: offset 3 is gone"))
    expect(row).to_contain_text("failed")
    expect(row).to_contain_text("offset 3 is gone")
    page.get_by_role("link", name="killed").click()
    expect(page.locator("#chosen")).to_have_text("killed")
    for name in ("revenue", "killed"):
        write_report(client, REPORTS_TOPIC, name, None)


def test_a_pipeline_that_does_not_report_is_seen_by_its_progress(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("events")
    write(client, "events", 100)
    cluster = Admin(client).cluster
    cluster.commit("silent-totals", {TopicPartition("events", 0): 60})
    page = open_page(f"{console}/pipelines")
    row = page.get_by_role("row").filter(has_text="silent-totals")
    expect(row).to_contain_text("40")
    expect(row).to_contain_text("standing still")
    cluster.commit("silent-totals", {TopicPartition("events", 0): 100})
    expect(row).to_contain_text("running")


def test_the_broker_page_shows_disks_and_settings(broker: Broker, console: str, open_page: Opened) -> None:
    page = open_page(f"{console}/broker")
    expect(page.get_by_text(broker.data)).to_be_visible()
    page.get_by_placeholder("Filter").fill("node.id")
    expect(page.get_by_role("row").filter(has_text="node.id")).to_contain_text("1")


def test_light_and_dark_are_the_systems_until_one_is_chosen(console: str, open_page: Opened) -> None:
    dark = re.compile("body--dark")
    page = open_page(f"{console}/broker")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body")).to_have_class(dark)
    page.emulate_media(color_scheme="light")
    expect(page.locator("body")).not_to_have_class(dark)
    page.get_by_label("Light or dark").click()
    expect(page.locator("body")).to_have_class(dark)
    page.reload()
    expect(page.get_by_label("Light or dark")).to_be_visible()
    expect(page.locator("body")).to_have_class(dark)
    page.context.clear_cookies(name="logbrook_dark")


def test_a_phone_shows_messages_as_cards_behind_a_menu(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("narrow")
    write(client, "narrow", 3)
    page = open_page(f"{console}/groups", on_phone=True)
    page.get_by_label("Menu").click()
    page.locator(".nav", has_text="Topics").click()
    page.get_by_role("link", name="narrow").click()
    page.get_by_text("key-2").click()
    expect(page.get_by_role("dialog")).to_contain_text("Partition 0, offset 2")
