"""The clusters that a user has given names: one small file in the user's configuration directory.

{"current": "staging", "contexts": {"staging": "broker-1:9092,broker-2:9092"}}
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logbrook.model import LogbrookError

_FILE = "contexts.json"


class ContextsError(LogbrookError):
    """The file cannot be read or written, or does not have what is asked of it."""


@dataclass(slots=True)
class Contexts:
    """Names with their bootstrap servers, and which of them is used, if any is."""

    path: str
    servers: dict[str, str] = field(default_factory=dict)
    current: str | None = None

    @property
    def current_servers(self) -> str | None:
        return None if self.current is None else self.servers[self.current]

    def save(self, name: str, servers: str) -> None:
        self.servers[name] = servers
        self.current = name
        self._write()

    def use(self, name: str) -> None:
        """Raises ContextsError."""
        self._check(name)
        self.current = name
        self._write()

    def remove(self, name: str) -> None:
        """Raises ContextsError."""
        self._check(name)
        del self.servers[name]
        self.current = None if self.current == name else self.current
        self._write()

    def _check(self, name: str) -> None:
        if name not in self.servers:
            saved = f"saved are {', '.join(sorted(self.servers))}" if self.servers else "none is saved"
            raise ContextsError(f"there is no context {name!r}; {saved} (`logbrook context save NAME HOST:PORT`)")

    def _write(self) -> None:
        text = json.dumps({"current": self.current, "contexts": self.servers}, indent=2, sort_keys=True)
        unfinished = f"{self.path}.new"
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(unfinished, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            # Another command that reads it meanwhile sees the old file or the new one, never half of it.
            os.replace(unfinished, self.path)
        except OSError as error:
            raise ContextsError(f"the contexts cannot be saved: {error}") from None


def load_contexts(environment: Mapping[str, str]) -> Contexts:
    """What is saved; nothing, if nothing is. Raises ContextsError."""
    path = _path(environment)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return Contexts(path)
    except (OSError, ValueError) as error:
        raise ContextsError(f"the saved contexts cannot be read: {path}: {error}") from None
    return _checked(path, found)


def _checked(path: str, found: Any) -> Contexts:
    fields = found if isinstance(found, dict) else {}
    servers, current = fields.get("contexts"), fields.get("current")
    if (
        not isinstance(servers, dict)
        or not all(isinstance(one, str) for one in servers.values())
        or (current is not None and current not in servers)
    ):
        raise ContextsError(f"the saved contexts are not as `logbrook context` writes them; repair or remove {path}")
    return Contexts(path, servers, current)


def _path(environment: Mapping[str, str]) -> str:
    """As the XDG base directory specification says: a relative path in the variable is to be ignored."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "logbrook", _FILE)
