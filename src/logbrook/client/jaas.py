"""Parser of `sasl.jaas.config`: the class of a login module, a control flag, and its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="...";

No error repeats any part of the text, which has a password in it.
"""

import re

from logbrook.client.errors import SecurityOptionError

_OPTION = "sasl.jaas.config"
_HEAD = re.compile(r"\s*([A-Za-z_][\w.$]*)\s+(\w+)")
_VALUE = re.compile(r"""\s+([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_END = re.compile(r"\s*;\s*")
_ESCAPE = re.compile(r"\\(.)")
_FLAGS = ("required", "requisite", "sufficient", "optional")


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the class of the login module and its options. Raises SecurityOptionError."""
    head = _HEAD.match(text)
    if head is None or head[2].lower() not in _FLAGS:
        raise SecurityOptionError(_OPTION, 'it must be MODULE required KEY="VALUE" ...;')
    values: dict[str, str] = {}
    position = head.end()
    while value := _VALUE.match(text, position):
        key, quoted, single_quoted, bare = value.groups()
        if key in values:
            raise SecurityOptionError(_OPTION, f"it has {key} twice")
        values[key] = bare if bare is not None else _ESCAPE.sub(_unescaped, quoted or single_quoted or "")
        position = value.end()
    if not _END.fullmatch(text, position):
        count = len(values)
        raise SecurityOptionError(_OPTION, f"it cannot be read after its {count} options; it must end with a semicolon")
    if values.get("tokenauth") == "true":
        raise SecurityOptionError(_OPTION, "delegation tokens (tokenauth) are not supported")
    return head[1], values


def _unescaped(escape: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape[1], escape[1])
