"""Fixtures of the storage tests. The logs that a test leaves are validated."""

from collections.abc import Iterator
from typing import Any

import pytest

from logbrook.ports import Files
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import NewStore, Store


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def open_store(files: MemoryFiles) -> Iterator[NewStore]:
    """Return a function that opens a data directory, by default on `files`. The settings are those of `Store`."""
    family: list[Store] = []

    def opened(on: Files | None = None, **settings: Any) -> Store:
        return Store(files if on is None else on, settings, family)

    yield opened
    for log in (log for store in family if store.is_open for log in store.directory):
        # A log that failed in the middle of a change is repaired by the next start.
        if log.corruption is None and log.environment.health.failure is None:
            log.validate()


@pytest.fixture
def new_store(open_store: NewStore) -> NewStore:
    """Return a function that creates a data directory with an empty log of PARTITION."""

    def created(on: Files | None = None, **settings: Any) -> Store:
        store = open_store(on, **settings)
        store.create()
        return store

    return created
