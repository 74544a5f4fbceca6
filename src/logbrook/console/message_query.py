"""The state of the message browser as the query of its address, so that a view of a topic can be linked to.

/topics/orders?from=offset&at=1200&partition=3     messages from an offset on
/topics/orders?search=paid&filter=value.total>10   a search
/topics/orders?message=3-1200                      one message
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlencode

from logbrook.console.decoding import FORMS

POSITIONS = {"end": "Newest", "start": "Start", "offset": "Offset", "time": "Time"}
_TEXT_LENGTH_MAX = 1_000


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Fields as users type them. `kind` is the kind of position and `at` the offset or time."""

    kind: str = "end"
    at: str = ""
    partition: str = ""
    search: str = ""
    filter: str = ""
    form: str = "json"
    message: tuple[int, int] | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Self:
        """Parse the query of an address. Values that are not possible are ignored."""
        texts = {name: parameters.get(name, "")[:_TEXT_LENGTH_MAX] for name in ("at", "partition", "search", "filter")}
        kind, form = parameters.get("from", ""), parameters.get("form", "")
        message = _parse_message(parameters.get("message", ""))
        if message is not None:
            kind, texts["partition"], texts["at"] = "offset", str(message[0]), str(message[1])
        return cls(
            kind=kind if kind in POSITIONS else "end",
            form=form if form in FORMS else "json",
            message=message,
            **texts,
        )

    def address(self, topic: str) -> str:
        """Return the path and the query of the topic's page in this state."""
        if self.message is not None:
            parameters = {"message": f"{self.message[0]}-{self.message[1]}"}
        else:
            parameters = {"partition": self.partition, "search": self.search, "filter": self.filter}
            if self.kind != "end":
                parameters = {"from": self.kind, "at": self.at} | parameters
        if self.form != "json":
            parameters["form"] = self.form
        query = urlencode({name: value for name, value in parameters.items() if value}, quote_via=quote)
        return f"/topics/{quote(topic, safe='')}" + (f"?{query}" if query else "")


def _parse_message(text: str) -> tuple[int, int] | None:
    partition, dash, offset = text.partition("-")
    if not dash or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in (partition, offset)):
        return None
    return int(partition), int(offset)
