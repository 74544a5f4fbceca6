"""Fixtures of the storage tests. Whatever a test did, the logs it leaves must be in order."""

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
    """Opens a data directory, on `files` unless told otherwise. The settings are those of `Store`."""
    family: list[Store] = []

    def opened(on: Files | None = None, **settings: Any) -> Store:
        return Store(files if on is None else on, settings, family)

    yield opened
    for log in (log for store in family if store.is_open for log in store.directory):
        # A log that failed half-way through a change is put in order by the next start, not before.
        if log.corruption is None and log.environment.health.failure is None:
            log.validate()


@pytest.fixture
def new_store(open_store: NewStore) -> NewStore:
    """A data directory in which the log of PARTITION was just created."""

    def created(on: Files | None = None, **settings: Any) -> Store:
        store = open_store(on, **settings)
        store.create()
        return store

    return created
