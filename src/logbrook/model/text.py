"""Text for messages: characters made safe for a terminal, quoted values, lists of words, sizes, hex dumps."""

from collections.abc import Iterator, Sequence

_SHOWN_CHARACTERS_MAX = 60
_SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_HEX_BYTES_PER_LINE = 16


def printable(text: str) -> str:
    """Escape every non-printing character (control characters, line ends, bidi marks), such as `\\x1b`.

    Untrusted text can then neither start a new line in a log nor move a terminal's cursor. Backslashes are doubled,
    so that two different texts never look alike.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode("ascii")


def quoted(value: object) -> str:
    """Format a setting's value for a message: printable, on one line, at most 60 characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = printable(value if isinstance(value, str) else repr(value))
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = f"{text[:_SHOWN_CHARACTERS_MAX]}..."
    return f'"{text}"' if isinstance(value, str) else text


def join_words(words: Sequence[str], conjunction: str) -> str:
    """Join words as in a sentence: "a, b or c" with `conjunction` "or"."""
    *others, last = words
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def size_text(count: float) -> str:
    """Format a number of bytes with a unit, such as 1.5 KiB."""
    size, unit = count, "B"
    for larger in _SIZE_UNITS:
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def hex_dump(data: bytes) -> Iterator[str]:
    """Yield lines like those of hexdump: position, bytes, characters."""
    for start in range(0, len(data), _HEX_BYTES_PER_LINE):
        line = data[start : start + _HEX_BYTES_PER_LINE]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        yield f"{start:08x}  {line.hex(' '):<{3 * _HEX_BYTES_PER_LINE - 1}}  {characters}"
