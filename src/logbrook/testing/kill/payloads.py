"""A record's value: an id that no other has, and filler to make it large, which follows from the id.

So a reader knows a value that was cut or mixed up from one that was sent.
"""

_SEPARATOR = b"|"


def payload(value: str, length: int) -> bytes:
    """At least as long as the id needs."""
    head = value.encode() + _SEPARATOR
    return head + (head * (length // len(head) + 1))[: max(0, length - len(head))]


def value_of(data: bytes | None) -> str:
    """The id; something that nobody sent if this is not the payload of one."""
    if data is None:
        return "no value at all"
    value = data.partition(_SEPARATOR)[0].decode(errors="replace")
    return value if payload(value, len(data)) == data else f"damaged bytes that begin with {data[:40]!r}"
