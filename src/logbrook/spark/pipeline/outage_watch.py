"""The outages that queries of a pipeline are waiting out, for its display."""

import time
from collections.abc import Callable, Sequence

from logbrook.spark.outage_notes import OutageNote, read_notes
from logbrook.spark.pipeline.display import QueryProgress


class OutageWatch:
    """Reads the notes of the application's processes in `directory`; without one there are no outages."""

    def __init__(self, directory: str | None, clock_s: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock_s = clock_s
        # The begin of each outage, by the servers.
        self._since_ms: dict[str, int] = {}

    def update(self, states: Sequence[QueryProgress]) -> list[str]:
        """Set `waiting` of the queries, and return a message for each outage that has begun or ended."""
        if self._directory is None:
            return []
        now_ms = round(self._clock_s() * 1000)
        notes = {note.servers: note for note in read_notes(self._directory, now_ms)}
        messages = []
        for servers in self._since_ms.keys() - notes.keys():
            waited_s = (now_ms - self._since_ms.pop(servers)) / 1000
            messages.append(f"the wait for {servers} ended after {waited_s:.0f} s")
        for servers, note in notes.items():
            if servers not in self._since_ms:
                self._since_ms[servers] = note.since_ms
                messages.append(f"waiting for {servers}: {note.error}")
        for state in states:
            state.waiting = self._waiting(state, list(notes.values()), now_ms)
        return messages

    def _waiting(self, state: QueryProgress, notes: Sequence[OutageNote], now_ms: int) -> str | None:
        for note in notes:
            # A query that has made progress since is not the one that waits.
            if not state.is_done and note.failed_ms > state.progressed_ms:
                return f"waiting for {note.servers} since {(now_ms - self._since_ms[note.servers]) // 1000} s"
        return None
