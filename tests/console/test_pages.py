"""Each page and each action, in a real browser."""

import json
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import time
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.group_member import GroupMember
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.pipelines.report import REPORTS_TOPIC, PipelineReport, RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import write_report
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker
from logbrook.testing.processes import wait_until
from tests.console.conftest import Opened

expect.set_options(timeout=15_000)

LAST_CELL_IS_INSIDE = """row => {
    const table = row.closest(".q-table__card");
    return table !== null && row.lastElementChild.getBoundingClientRect().right <= table.getBoundingClientRect().right;
}"""


def write(client: Client, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    """Produce records with a number in key and value, a millisecond apart."""
    now_ms = round(time() * 1000)
    records = [
        Record(f"key-{n}".encode(), json.dumps({"number": n}).encode(), (("origin", b"test"),), now_ms + n)
        for n in range(first, first + count)
    ]
    client.produce(topic, partition, build_batch(records))


def last_cell_is_inside(row: Locator) -> bool:
    return bool(row.first.evaluate(LAST_CELL_IS_INSIDE))


def shows(page: Page, text: str) -> None:
    expect(page.get_by_text(text).first).to_be_visible()


def notices(page: Page, text: str) -> None:
    expect(page.locator(".q-notification").filter(has_text=text).first).to_be_visible()


def choose_form(page: Page, form: str) -> None:
    page.get_by_role("dialog").get_by_label("Show as").click()
    page.get_by_role("option", name=form, exact=True).click()


def rows(page: Page) -> list[list[str]]:
    return [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]


def test_the_overview_shows_throughput(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("busy", 2)
    page = open_page(console)
    write(client, "busy", 300)
    expect(page.get_by_role("row").filter(has_text="busy")).to_contain_text("300")
    write(client, "busy", 300, partition=1)
    expect(page.get_by_role("row").filter(has_text="busy")).to_contain_text("600")
    expect(page.locator("canvas")).to_have_count(2)
    # The metrics port responds, so no hint is shown.
    expect(page.get_by_text("logbrook console --metrics")).to_be_hidden()
    expect(page.locator("#state")).to_have_text(broker.bootstrap_servers)


def test_a_topic_is_created_changed_and_deleted_after_a_question(
    client: Client, console: str, open_page: Opened
) -> None:
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
    page.get_by_label("Partitions in all").fill("5")
    page.get_by_role("button", name="Add", exact=True).click()
    notices(page, "made-here has 5 partitions")
    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Cancel").click()
    assert "made-here" in Admin(client).topics.names()
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label("Type made-here to confirm").fill("made-here")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page).to_have_url(f"{console}/topics")
    assert "made-here" not in Admin(client).topics.names()


def test_messages_are_read_from_every_position_and_searched(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("read")
    write(client, "read", 120)
    page = open_page(f"{console}/topics/read")
    status = page.locator("#status")
    expect(status).to_have_text("50 shown")
    assert [row[2] for row in rows(page)] == [str(n) for n in range(119, 69, -1)]
    page.get_by_role("button", name="Older").click()
    expect(status).to_have_text("100 shown")
    page.get_by_role("button", name="Older").click()
    expect(status).to_have_text("120 shown; these are all")

    def choose(place: str) -> None:
        page.get_by_label("From").click()
        page.get_by_role("option", name=place, exact=True).click()

    choose("Start")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("key-0")
    choose("Offset")
    page.get_by_label("Offset", exact=True).fill("ten")
    page.get_by_role("button", name="Read", exact=True).click()
    notices(page, "'ten' is not an offset")
    page.get_by_label("Offset", exact=True).fill("100")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(status).to_have_text("20 shown; these are all")
    choose("Time")
    page.get_by_role("button", name="Read", exact=True).click()
    notices(page, "choose a date and a time of day")
    page.get_by_label("Time", exact=True).fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("key-0")

    page.get_by_label("Search in key, value and headers").fill("KEY-11")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(status).to_have_text("11 shown; 120 searched; these are all")
    page.get_by_label("Search in key, value and headers").fill("nowhere to be found")
    page.get_by_role("button", name="Read", exact=True).click()
    shows(page, "No message matches.")
    page.get_by_label("Partition", exact=True).fill("7")
    page.get_by_role("button", name="Read", exact=True).click()
    notices(page, "there is no such topic or partition")


def test_a_page_does_not_call_a_topic_empty_before_it_was_read(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("unread")
    write(client, "unread", 3)
    page = open_page(f"{console}/topics/unread")
    # From here on the console knows the topic.
    expect(page.get_by_role("row").filter(has_text="key-0")).to_be_visible()
    # The page as it is sent, mostly before the messages are read.
    text = page.request.get(f"{console}/topics/unread").text()
    assert "Reading" in text or "key-0" in text
    assert "There is no message here" not in text


@pytest.mark.parametrize(
    ("query", "error"), [("from=offset&at=abc", "abc"), ("filter=value.a+%3D%3D%3D", "write == to")]
)
def test_an_address_that_cannot_be_read_is_not_shown_as_an_empty_topic(
    broker: Broker, console: str, open_page: Opened, query: str, error: str
) -> None:
    broker.create_topic(topic := f"unreadable-{len(query)}")
    page = open_page(f"{console}/topics/{topic}?{query}")
    notices(page, error)
    expect(page.locator("#status")).to_have_text("Nothing was read.")
    expect(page.get_by_text("There is no message here")).to_be_hidden()


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
    fetched = client.fetch("written", 1, Offset(0))
    assert b"Br\xc3\xbchwurst" in bytes(fetched.records)

    page.locator("tbody tr").first.click()
    shown = page.get_by_role("dialog")
    expect(shown).to_contain_text('"price": 12,\n')
    expect(shown).to_contain_text("from: a browser")
    choose_form(page, "Hex")
    expect(shown).to_contain_text("00000000  7b 22 70 72")
    choose_form(page, "Text")
    expect(shown).to_contain_text('{"price": 12, "what": "Brühwurst"}')
    choose_form(page, "Avro or Protobuf")
    notices(page, "start it with --schema-registry URL")
    with page.expect_download() as value:
        shown.get_by_role("button", name="Download the value").click()
    assert value.value.path().read_bytes().startswith(b'{"price": 12')
    shown.get_by_label("Close").click()
    with page.expect_download() as lines:
        page.get_by_role("button", name="Download", exact=True).click()
    (line,) = lines.value.path().read_text().splitlines()
    assert json.loads(line)["headers"] == [{"name": "from", "value": "a browser"}]


def test_the_live_view_shows_new_messages(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("tail")
    write(client, "tail", 5)
    page = open_page(f"{console}/topics/tail")
    expect(page.locator("#status")).to_have_text("5 shown; these are all")
    page.get_by_role("switch", name="Live").click()
    expect(page.locator("#status")).to_have_text("Waiting for messages …")
    write(client, "tail", 1, first=77)
    expect(page.locator("tbody tr").first).to_contain_text("key-77")
    write(client, "tail", 1, first=78)
    expect(page.locator("tbody tr").first).to_contain_text("key-78")
    assert len(rows(page)) == 2
    # More than a page shows arrive at once: the newest are shown, the others counted.
    write(client, "tail", 5_000, first=79)
    expect(page.locator("#status")).to_have_text("Live: the last 200; 4,800 skipped to keep up")
    expect(page.locator("tbody tr").first).to_contain_text("key-5078")
    Admin(client).topics.delete(["tail"])
    notices(page, "there is no such topic or partition")
    expect(page.get_by_role("switch", name="Live")).not_to_be_checked()


# test_a_group_shows_its_members_and_lag_and_is_reset_and_deleted resets one partition too.
@pytest.mark.long
def test_a_group_is_reset_in_one_partition_of_one_topic(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    committed = {}
    for topic in ("reset-a", "reset-b"):
        broker.create_topic(topic, 2)
        for partition in (0, 1):
            write(client, topic, 5, partition=partition)
            committed[TopicPartition(topic, partition)] = 5
    groups = Admin(client).groups
    Admin(client).cluster.coordinators.commit("resetters", committed)
    page = open_page(f"{console}/groups/resetters")
    expect(page.get_by_role("row").filter(has_text="reset-b-1")).to_be_visible()
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("Topic", exact=True).click()
    page.get_by_role("option", name="reset-b").click()
    page.get_by_label("Partitions", exact=True).fill("1")
    page.get_by_role("button", name="Show changes").click()
    shows(page, "Reset 1 offset of resetters?")
    page.get_by_role("button", name="Reset", exact=True).click()
    notices(page, "The offsets of resetters are reset.")
    after = {partition: offset.offset for partition, offset in groups.committed("resetters").items()}
    assert after == committed | {TopicPartition("reset-b", 1): 0}
    groups.delete(["resetters"])


# The look of a page; test_a_phone_shows_messages_as_cards_behind_a_menu has one for `make test`.
@pytest.mark.long
def test_long_names_and_keys_leave_room_for_the_other_columns(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    name = "long-" + "n" * 244
    broker.create_topic(name)
    client.produce(name, 0, build_batch([Record(b"k" * 5_000, b"v" * 5_000, (), round(time() * 1000))]))
    for path in ("/topics", f"/topics/{name}"):
        page = open_page(console + path)
        if path == "/topics":
            page.get_by_placeholder("Filter by name").fill("long-n")
        row = page.locator("tbody tr").filter(has_text="long-" if path == "/topics" else "kkk")
        cell = row.locator("td").filter(has_text="nnn" if path == "/topics" else "kkk").first
        expect(cell).to_have_attribute("title", re.compile("nnn|kkk"))
        # The page replaces its rows now and then: a row that has just been replaced is in no table.
        assert wait_until(partial(last_cell_is_inside, row), 15)
    Admin(client).topics.delete([name])


# test_decoding.py has values that are nested too deeply.
@pytest.mark.long
def test_deeply_nested_json_is_shown_as_text(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("nested")
    client.produce("nested", 0, build_batch([Record(b"k", b"[" * 100_000, (), round(time() * 1000))]))
    page = open_page(f"{console}/topics/nested")
    page.locator("tbody tr").first.click()
    expect(page.locator("#message-value")).to_contain_text("[[[[")


# The look of an error; other tests have their texts.
@pytest.mark.long
def test_an_error_is_readable_and_can_be_closed(console: str, open_page: Opened) -> None:
    page = open_page(f"{console}/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("x" * 600)
    page.get_by_role("button", name="Create", exact=True).click()
    error = page.locator(".q-notification").first
    expect(error).to_contain_text("creating topic xxx")
    style = "element => [getComputedStyle(element).color, element.scrollWidth <= element.clientWidth]"
    close = error.get_by_role("button", name="Close")
    assert error.locator(".q-notification__message").evaluate(style) == ["rgb(255, 255, 255)", True]
    assert close.evaluate(style)[0] == "rgb(255, 255, 255)"
    box = error.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1280
    close.click()
    expect(error).to_have_count(0)


def test_a_view_and_a_message_have_links(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("linked", 2)
    write(client, "linked", 30, partition=1)
    page = open_page(f"{console}/topics/linked?from=offset&at=20&partition=1&filter=value.number%20%3E%2024")
    expect(page.locator("#status")).to_have_text("5 shown; 10 searched; these are all")
    # The row is opened with the keyboard.
    shown = page.get_by_role("dialog")
    expect(page.locator("tbody tr")).to_have_count(5)
    for _ in range(5):
        # A row that is drawn again between focus and key loses the key.
        page.locator("tbody tr").nth(1).press("Enter")
        with suppress(AssertionError):
            expect(shown).to_be_visible(timeout=3_000)
            break
    expect(shown).to_contain_text("Partition 1, offset 26")
    expect(page).to_have_url(f"{console}/topics/linked?message=1-26")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    link = f"{console}/topics/linked?message=1-26"
    for label, text in {"Copy value": '{\n  "number": 26\n}', "Copy link": link}.items():
        shown.get_by_role("button", name=label).click()
        notices(page, "Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == text
    page.context.clear_permissions()
    shown.get_by_label("Close").click()
    expect(page).to_have_url(re.compile(r"/topics/linked\?from=offset&at=20&partition=1&filter="))
    expect(page.locator("tr.marked")).to_contain_text("key-26")

    page = open_page(f"{console}/topics/linked?message=1-28")
    expect(page.get_by_role("dialog")).to_contain_text("Partition 1, offset 28")
    page.get_by_role("dialog").get_by_label("Close").click()
    expect(page.locator("tr.marked")).to_contain_text("key-28")
    page = open_page(f"{console}/topics/linked?message=1-300")
    expect(page.locator("#status")).to_contain_text("message 1-300 is not in the topic")
    page = open_page(f"{console}/topics/linked?tab=partitions")
    expect(page.get_by_role("button", name="Add partitions")).to_be_visible()
    page.get_by_role("tab", name="Settings").click()
    expect(page).to_have_url(f"{console}/topics/linked?tab=settings")


def test_a_search_covers_the_whole_topic_shows_progress_and_stops(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("searched", 2, settings={"retention.ms": "-1"})
    batch = build_batch([Record(b"k", b'{"n": %d}' % n, (), 1_700_000_000_000) for n in range(10_000)])
    for _ in range(60):
        client.produce("searched", 0, batch)
    client.produce("searched", 1, batch)
    # So many conditions on so many records take much longer than it takes to stop the search.
    slow = " or ".join(f"value.n == -{n}" for n in range(1, 45))
    page = open_page(f"{console}/topics/searched?filter={quote(slow)}")
    expect(page.locator("#status")).to_contain_text("searched (")
    expect(page.get_by_role("progressbar", name="Progress of the search")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_have_text(re.compile("^Stopped: 0 shown; [0-9,]+ searched; Older continues$"))
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    page.get_by_label("Partition", exact=True).fill("1")
    page.get_by_label("Filter", exact=True).fill("value.n == 17")
    page.get_by_label("Filter", exact=True).press("Enter")
    expect(page.locator("#status")).to_have_text("1 shown; 10,000 searched; these are all")
    page.get_by_label("Filter", exact=True).fill("value.n = 17")
    page.get_by_role("button", name="Read", exact=True).click()
    notices(page, "cannot be part of a filter")


def test_times_are_in_the_time_zone_of_the_browser(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("timed", settings={"retention.ms": "-1"})
    # 2023-11-14 22:13:20 in UTC.
    records = [Record(b"k%d" % n, b"v", (), 1_700_000_000_123 + 1_000 * n) for n in range(3)]
    client.produce("timed", 0, build_batch(records))
    page = open_page(f"{console}/topics")
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        page.goto(f"{console}/topics/timed?from=time&at=1700000001000")
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page.locator("tbody tr").first).to_contain_text("2023-11-15 07:13:21.123")
        expect(page.get_by_label("Time", exact=True)).to_have_value("2023-11-15T07:13:21")
        page.get_by_label("Time", exact=True).fill("2023-11-15T07:13:22")
        page.get_by_role("button", name="Read", exact=True).click()
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page).to_have_url(f"{console}/topics/timed?from=time&at=1700000002000")
        page.locator("tbody tr").first.click()
        time_shown = page.get_by_role("dialog").get_by_title("2023-11-14 22:13:22.123 UTC")
        expect(time_shown).to_have_text("2023-11-15 07:13:22.123")
    finally:
        session.send("Emulation.setTimezoneOverride", {"timezoneId": ""})
        session.detach()


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
        expect(page).to_have_url(f"{console}/groups/readers%2Fof%20it")
        page.get_by_role("button", name="Delete group").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        notices(page, "it has active members; stop them first")
        member.leave()
    expect(page.get_by_text("The group has no members at present.")).to_be_visible()

    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("To", exact=True).click()
    page.get_by_role("option", name="an offset").click()
    page.get_by_role("button", name="Show changes").click()
    notices(page, "is not an offset")
    page.get_by_label("Partitions", exact=True).fill("0")
    page.get_by_label("Offset", exact=True).fill("12")
    expect(page.get_by_label("Offset", exact=True)).to_have_value("12")
    page.get_by_role("button", name="Show changes").click()
    shows(page, "consumed-0: 30 → 12")
    page.get_by_role("button", name="Reset", exact=True).click()
    notices(page, "The offsets of readers/of it are reset.")
    expect(page.get_by_role("row").filter(has_text="consumed-0").first).to_contain_text("28")
    page.get_by_role("button", name="Delete group").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete group").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page).to_have_url(f"{console}/groups")
    assert "readers/of it" not in [listing.group_id for listing in Admin(client).groups.all()]


def test_a_reporting_pipeline_is_shown_with_its_report(client: Client, console: str, open_page: Opened) -> None:
    now_ms = round(time() * 1000)
    running = PipelineReport(
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

    def say(report: PipelineReport) -> None:
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


def test_a_pipeline_without_reports_is_shown_by_its_groups(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("events")
    write(client, "events", 100)
    cluster = Admin(client).cluster
    cluster.coordinators.commit("silent-totals", {TopicPartition("events", 0): 60})
    page = open_page(f"{console}/pipelines")
    row = page.get_by_role("row").filter(has_text="silent-totals")
    expect(row).to_contain_text("40")
    expect(row).to_contain_text("standing still")
    cluster.coordinators.commit("silent-totals", {TopicPartition("events", 0): 100})
    expect(row).to_contain_text("running")


# test_every_page_is_linked_and_handles_an_empty_broker opens the page.
@pytest.mark.long
def test_the_broker_page_shows_disks_and_settings(broker: Broker, console: str, open_page: Opened) -> None:
    page = open_page(f"{console}/broker")
    expect(page.get_by_text(broker.data)).to_be_visible()
    page.get_by_placeholder("Filter").fill("node.id")
    expect(page.get_by_role("row").filter(has_text="node.id")).to_contain_text("1")


def test_dark_mode_follows_the_system_until_chosen(console: str, open_page: Opened) -> None:
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


def test_numbers_are_sorted_as_numbers(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("sorted", 3)
    for partition, count in enumerate((900, 1_200, 20)):
        write(client, "sorted", count, partition=partition)
    for name in ("Next offset", "Size"):
        page = open_page(f"{console}/topics/sorted?tab=partitions")
        page.get_by_role("columnheader", name=name).click()
        # As text, 1,200 would be the first.
        expect(page.locator("tbody tr td:first-child")).to_have_text(["2", "0", "1"])


# The look of a page; test_a_phone_shows_messages_as_cards_behind_a_menu has one for `make test`.
@pytest.mark.long
def test_on_a_phone_text_beyond_the_screen_does_not_make_rows_tall(console: str, open_page: Opened) -> None:
    page = open_page(f"{console}/broker", on_phone=True)
    row = page.get_by_role("row").filter(has_text="auto.create.topics.enable")
    expect(row).to_contain_text("Create a topic when")
    box = row.bounding_box()
    assert box is not None
    assert box["height"] < 60


def test_a_topic_that_is_created_while_its_page_is_open_appears(
    broker: Broker, console: str, open_page: Opened
) -> None:
    page = open_page(f"{console}/topics/soon")
    shows(page, "There is no topic soon.")
    broker.create_topic("soon")
    shows(page, "There is no message here. Write one with Produce above, or with logbrook produce soon")
    expect(page.get_by_text("There is no topic soon.")).to_be_hidden()


def test_a_phone_shows_messages_as_cards_behind_a_menu(
    broker: Broker, client: Client, console: str, open_page: Opened
) -> None:
    broker.create_topic("narrow")
    write(client, "narrow", 3)
    page = open_page(f"{console}/groups", on_phone=True)
    page.get_by_label("Menu").click()
    page.locator(".nav", has_text="Topics").click()
    page.get_by_placeholder("Filter by name").fill("narrow")
    page.get_by_role("link", name="narrow").click()
    page.get_by_text("key-2").click()
    expect(page.get_by_role("dialog")).to_contain_text("Partition 0, offset 2")
