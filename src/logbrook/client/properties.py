"""Parser of Java's .properties files, in which Kafka's tools take the options of clients (`--command-config`)."""

import re

from logbrook.client.errors import ClientError

_BYTES_MAX = 1 << 20
_ENTRY = re.compile(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


class PropertiesError(ClientError):
    """The file cannot be read. The message has none of its content, which may be secret."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be used as a file of client options: {reason}")
        self.path = path


def read_properties(path: str) -> dict[str, str]:
    """Return the options in the file. Raises PropertiesError."""
    try:
        with open(path, "rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise PropertiesError(path, error.strerror or str(error)) from None
    if len(content) > _BYTES_MAX:
        raise PropertiesError(path, f"it is larger than {_BYTES_MAX} bytes")
    try:
        return parse_properties(content.decode())
    except UnicodeDecodeError:
        raise PropertiesError(path, "it is not UTF-8 text") from None


def parse_properties(text: str) -> dict[str, str]:
    """Return the last value of each key. Comments begin with # or !, and a backslash at the end continues a line."""
    options = {}
    for line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None, "every line is a key with a value, if only empty ones"
        options[_unescaped(entry[1])] = _unescaped(entry[2])
    return options


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    is_continued = False
    for natural in text.replace("\r\n", "\n").split("\n"):
        line = natural.lstrip(" \t\f")
        if not is_continued and (not line or line[0] in "#!"):
            continue
        continues = bool(_CONTINUED.search(line))
        part = line[:-1] if continues else line
        if is_continued:
            lines[-1] += part
        else:
            lines.append(part)
        is_continued = continues
    return lines


def _unescaped(text: str) -> str:
    def replace(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text)
