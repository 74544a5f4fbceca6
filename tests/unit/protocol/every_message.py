"""Every message and version that the protocol package knows, for tests that take them all."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, NamedTuple

from logbrook.protocol import messages
from logbrook.protocol.encoding import encode
from logbrook.protocol.schema import ApiMessage, Message


class Case(NamedTuple):
    """One version of one message. `module` has the name of the API, as kio's has."""

    module: str
    message: type[ApiMessage]
    version: int

    @property
    def is_flexible(self) -> bool:
        return self.version >= self.message.FLEXIBLE_SINCE

    @property
    def is_request(self) -> bool:
        return self.message.__name__.endswith("Request")

    def __str__(self) -> str:
        return f"{self.message.__name__}-v{self.version}"


def _api_messages() -> Iterator[tuple[str, type[ApiMessage]]]:
    for info in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{info.name}")
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, ApiMessage) and found is not ApiMessage:
                yield info.name, found


MESSAGES = list(_api_messages())
CASES = [
    Case(module, message, version)
    for module, message in MESSAGES
    for version in range(message.VERSIONS.first, message.VERSIONS.last + 1)
]


def encoded(message: ApiMessage, version: int) -> bytes:
    return b"".join(encode(message, version))


def plain(value: Any, version: int) -> Any:
    """What a message says in a version, as dictionaries, lists and scalars that can be compared."""
    if isinstance(value, Message):
        return {
            field.name: plain(_told(value, field.name, field.kind, field.tag), version)
            for field in value.FIELDS
            if version in field.versions
        }
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [plain(one, version) for one in value]
    return value


def _told(value: Message, name: str, kind: Any, tag: int | None) -> Any:
    told = getattr(value, name)
    # A tagged struct that is left out says what it says by default.
    return kind() if told is None and tag is not None and not isinstance(kind, str) else told
