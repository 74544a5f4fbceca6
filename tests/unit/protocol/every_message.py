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
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, ApiMessage) and member is not ApiMessage:
                yield info.name, member


MESSAGES = list(_api_messages())
CASES = [
    Case(module, message, version)
    for module, message in MESSAGES
    for version in range(message.VERSIONS.first, message.VERSIONS.last + 1)
]


def encoded(message: ApiMessage, version: int) -> bytes:
    return b"".join(encode(message, version))


def plain(value: Any, version: int) -> Any:
    """Convert a message's fields in a version to dictionaries, lists and scalars that can be compared."""
    if isinstance(value, Message):
        return {
            field.name: plain(_field_value(value, field.name, field.kind, field.tag), version)
            for field in value.FIELDS
            if version in field.versions
        }
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [plain(element, version) for element in value]
    return value


def _field_value(value: Message, name: str, kind: Any, tag: int | None) -> Any:
    field_value = getattr(value, name)
    # A tagged struct that is absent has the default value.
    return kind() if field_value is None and tag is not None and not isinstance(kind, str) else field_value
