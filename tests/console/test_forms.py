"""What people see and type, and what is found in a page of metrics."""

import pytest

from logbrook.client.positions import AtOffset, AtTime, End, Start
from logbrook.console.forms import position_of, preview, settings_in, shown_bytes, shown_size, shown_time, text_of
from logbrook.console.metrics import parse_metrics, quantile


def test_bytes_are_shown_in_the_form_that_is_wanted_or_the_next_that_they_have() -> None:
    assert shown_bytes(b'{"a":[1]}', "json") == '{\n  "a": [\n    1\n  ]\n}'
    assert shown_bytes(b'{"a":', "json") == '{"a":'
    assert shown_bytes(b"\x00\xff", "json") == f"00000000  {'00 ff':<47}  .."
    assert shown_bytes(b"ab", "hex") == f"00000000  {'61 62':<47}  ab"
    assert shown_bytes(None, "text") == "null"


def test_a_preview_is_one_line_and_not_too_long() -> None:
    assert preview(b"a\n  b", "text") == "a b"
    assert preview("ü".encode() * 500, "text") == "ü" * 160 + " …"
    assert preview(b"\x01" * 100, "text", 30) == "01 " * 10 + "…"


def test_a_text_may_be_cut_in_the_middle_of_a_letter_but_has_no_control_characters() -> None:
    assert text_of("aü".encode()[:2]) == "a"
    assert text_of(b"\xffa") is None
    assert text_of(b"\x00") is None


def test_sizes_and_times_are_shown_as_people_like_them() -> None:
    assert [shown_size(one) for one in (None, 0, 1023, 1536, 3 << 40)] == ["-", "0 B", "1023 B", "1.5 KiB", "3.0 TiB"]
    assert shown_time(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert shown_time(-1) == shown_time(10**18) == "-"


def test_places_are_understood_or_refused_with_a_sentence() -> None:
    assert position_of("start", "") == Start()
    assert position_of("end", "") == End()
    assert position_of("offset", " 7 ") == AtOffset(7)
    assert position_of("time", "1970-01-01T00:00:01") == position_of("time", "1000") == AtTime(1_000)
    assert position_of("time", "1970-01-01T01:00:01+01:00") == AtTime(1_000)
    for kind, text in (("offset", "-1"), ("offset", "²"), ("time", "noon"), ("middle", "")):
        with pytest.raises(ValueError, match="is no"):
            position_of(kind, text)


def test_settings_are_lines_of_name_and_value() -> None:
    assert settings_in("a=1\n\n b.c = x=y ") == {"a": "1", "b.c": "x=y"}
    with pytest.raises(ValueError, match="is no setting"):
        settings_in("a")


def test_metrics_are_summed_over_topics_and_histograms_are_read() -> None:
    found = parse_metrics(
        "# TYPE logbrook_topic_in_bytes_total counter\n"
        'logbrook_topic_in_bytes_total{topic="a"} 5\n'
        'logbrook_topic_in_bytes_total{topic="b"} 7\n'
        "# TYPE logbrook_request_duration_seconds histogram\n"
        'logbrook_request_duration_seconds_bucket{api="Produce",le="0.1"} 3\n'
        'logbrook_request_duration_seconds_bucket{api="Produce",le="+Inf"} 4\n'
        "# TYPE something_else gauge\nsomething_else 1\n"
    )
    assert found.totals == {"logbrook_topic_in_bytes_total": 12}
    assert found.histograms == {"Produce": {0.1: 3, float("inf"): 4}}


def test_a_quantile_is_of_what_came_in_between() -> None:
    infinite = float("inf")
    before = {0.1: 100.0, 0.2: 100.0, infinite: 100.0}
    after = {0.1: 100.0, 0.2: 110.0, infinite: 110.0}
    assert quantile(0.5, before, after) == pytest.approx(0.15)
    assert quantile(0.99, before, before) is None
    # A broker that was started again counts from 0.
    assert quantile(0.5, after, before) is None
    assert quantile(0.99, {}, {0.1: 0.0, 0.2: 0.0, infinite: 5.0}) == 0.2
