"""Readable text of keys and values, also of hostile ones."""

import json

import pytest

from logbrook.console import decoding
from logbrook.console.decoding import format_bytes, missing_package, preview


def test_bytes_are_shown_as_requested_or_in_the_next_possible_format() -> None:
    assert format_bytes(b'{"a":[1]}', "json") == '{\n  "a": [\n    1\n  ]\n}'
    assert format_bytes(b'{"a":', "json") == '{"a":'
    assert format_bytes(b"\x00\xff", "json") == f"00000000  {'00 ff':<47}  .."
    assert format_bytes(b"ab", "hex") == f"00000000  {'61 62':<47}  ab"
    assert format_bytes(None, "text") == "null"


def test_a_preview_is_one_line_and_not_too_long() -> None:
    assert preview(b"a\n  b", "text") == "a b"
    assert preview("ü".encode() * 500, "text") == "ü" * 160 + " …"
    assert preview(b"\x01" * 100, "text", 30) == "01 " * 10 + "…"


@pytest.mark.parametrize("form", list(decoding.FORMS))
@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"a":' * 50_000, b"<a>" * 50_000, b"\x91" * 100_000, b"\x81" * 100_000]
)
def test_deeply_nested_data_is_shown_in_every_format(form: str, data: bytes) -> None:
    assert format_bytes(data, form)
    assert preview(data[:8_000], form)


def test_message_pack_and_cbor_are_shown_as_json() -> None:
    msgpack, cbor2 = pytest.importorskip("msgpack"), pytest.importorskip("cbor2")
    value = {"name": "Brühwurst", "raw": b"\x00\xff", 7: [1.5, None, True], "large": 1 << 63}
    expected = {"name": "Brühwurst", "raw": {"base64": "AP8="}, "7": [1.5, None, True], "large": 1 << 63}
    for form, data in (("msgpack", msgpack.packb(value)), ("cbor", cbor2.dumps(value))):
        assert json.loads(format_bytes(data, form)) == expected
        assert preview(data, form).startswith('{"name": "Brühwurst"')
        assert format_bytes(data[:-3], form).startswith(f"Not {decoding.FORMS[form]}: ")
        # The start of a value that cannot be decoded is shown in another format.
        assert preview(data[:-3], form)


def test_a_cbor_value_that_refers_to_itself_is_refused() -> None:
    pytest.importorskip("cbor2")
    # Tag 28 marks an array as shared, and tag 29 in it refers to it.
    assert "Not CBOR" in format_bytes(bytes.fromhex("d81c81d81d00"), "cbor")
    # Each array holds the one before it twice: 2^40 parts if it is expanded.
    bomb = bytes.fromhex("d81c81") + b"\x00"
    for level in range(40):
        bomb = bytes.fromhex("d81c83") + bomb + 2 * (b"\xd8\x1d" + b"\x18" + bytes([39 - level]))
    assert "Not CBOR" in format_bytes(bomb, "cbor")


def test_xml_is_indented_unless_it_has_a_document_type() -> None:
    assert format_bytes(b"<a><b>1</b><c/></a>", "xml") == "<a>\n  <b>1</b>\n  <c/>\n</a>"
    bomb = b'<!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>'
    assert format_bytes(bomb, "xml") == bomb.decode()
    assert format_bytes(b"<a>", "xml") == "<a>"


def test_a_missing_package_and_a_missing_registry_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(decoding, "import_module", not_installed)
    assert missing_package("cbor") == "cbor2"
    assert missing_package("json") is None
    assert "pip install msgpack" in format_bytes(b"\x01", "msgpack")
    assert "--schema-registry" in format_bytes(b"\x00", "schema")
