"""Java's .properties files."""

from pathlib import Path

import pytest

from logbrook.client.properties import PropertiesError, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("# comment\n! comment\n\n   \n", {}),
        ("a=1\nb = 2\nc:3\nd 4\ne", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("  a.b = x = y : z  \r\n", {"a.b": "x = y : z  "}),
        ("a = one \\\n    two\\\n  # three\nb=2", {"a": "one two# three", "b": "2"}),
        ("a = ends with a backslash\\\\\nb = 2", {"a": "ends with a backslash\\", "b": "2"}),
        ("a = \\u00e9\\t\\\\n\\q\nkey\\ with\\=signs = 1", {"a": "\u00e9\t\\nq", "key with=signs": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ('sasl.jaas.config=M required username="a" \\\n  password="b";', None),
        ("a = trailing \\", {"a": "trailing "}),
    ],
)
def test_entries_are_read_as_java_reads_them(text: str, options: dict[str, str] | None) -> None:
    expected = {"sasl.jaas.config": 'M required username="a" password="b";'} if options is None else options
    assert parse_properties(text) == expected


def test_a_file_that_cannot_be_read_is_named_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with pytest.raises(PropertiesError, match=r"client.properties .*: No such file"):
        read_properties(str(path))
    path.write_bytes(b"sasl.password=s3cr3t\xff\xfe")
    with pytest.raises(PropertiesError, match="not UTF-8") as caught:
        read_properties(str(path))
    assert "s3cr3t" not in str(caught.value)
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(PropertiesError, match="larger than"):
        read_properties(str(path))
