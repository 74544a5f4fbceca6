"""What a copier does with a record's value: enough to tell a copy from what was copied."""

_PREFIX = b"copy of "


def transform(value: bytes) -> bytes:
    return _PREFIX + value
