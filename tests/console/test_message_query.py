"""The addresses of views of messages."""

import pytest

from logbrook.console.message_query import MessageQuery


@pytest.mark.parametrize(
    ("parameters", "address"),
    [
        ({}, "/topics/orders"),
        ({"from": "end", "at": "7"}, "/topics/orders"),
        ({"from": "start"}, "/topics/orders?from=start"),
        ({"from": "offset", "at": "12", "partition": "3"}, "/topics/orders?from=offset&at=12&partition=3"),
        (
            {"search": "a&b", "filter": 'value.x == "ü"'},
            "/topics/orders?search=a%26b&filter=value.x%20%3D%3D%20%22%C3%BC%22",
        ),
        ({"form": "hex"}, "/topics/orders?form=hex"),
        ({"message": "3-1200", "form": "cbor"}, "/topics/orders?message=3-1200&form=cbor"),
        # Impossible values are ignored.
        ({"from": "middle", "form": "elvish", "message": "x-1", "tab": "settings"}, "/topics/orders"),
        ({"message": "1"}, "/topics/orders"),
    ],
)
def test_an_address_names_a_view(parameters: dict[str, str], address: str) -> None:
    assert MessageQuery.of(parameters).address("orders") == address


def test_a_link_to_a_message_reads_from_its_offset() -> None:
    query = MessageQuery.of({"message": "3-1200"})
    assert (query.kind, query.partition, query.at, query.message) == ("offset", "3", "1200", (3, 1200))
