"""Requests to etcd over its JSON gateway: the leader, a change of the leader, and all keys, for a diagnosis."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

_TIMEOUT_S = 2.0


class EtcdAdmin:
    """`addresses` are HOST:PORT of all members; a member is named by its place in them."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    def leader(self) -> int | None:
        """Return the member that leads, None if none says so."""
        for member in range(len(self._addresses)):
            status = self._status(member)
            if status is not None and status.get("leader") == status["header"]["member_id"]:
                return member
        return None

    def move_leader(self, leader: int, target: int) -> bool:
        """Make another member the leader. Return False if that failed."""
        status = self._status(target)
        if status is None:
            return False
        request = {"targetID": status["header"]["member_id"]}
        return self._post(leader, "/v3/maintenance/transfer-leadership", request) is not None

    def entries(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield all keys below a prefix with their values. Yields nothing if no member answers."""
        start = prefix.encode()
        end = start[:-1] + bytes([start[-1] + 1])
        request = {"key": b64encode(start).decode(), "range_end": b64encode(end).decode()}
        for member in range(len(self._addresses)):
            answer = self._post(member, "/v3/kv/range", request)
            if answer is not None:
                for item in answer.get("kvs", ()):
                    value = b64decode(item.get("value", "")).decode(errors="replace")
                    yield b64decode(item["key"]).decode(errors="replace"), f"{value} (revision {item['mod_revision']})"
                return

    def _status(self, member: int) -> dict[str, Any] | None:
        return self._post(member, "/v3/maintenance/status", {})

    def _post(self, member: int, path: str, content: dict[str, Any]) -> dict[str, Any] | None:
        request = Request(f"http://{self._addresses[member]}{path}", json.dumps(content).encode())
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except (OSError, URLError, ValueError):
            return None
