"""One broker for the tests that need no other, a topic each."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.unit.server.json.json_kit import JsonPeer, json_peer, json_shell
from tests.unit.server.shell_kit import Shell

_numbers = count()


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with json_shell() as shell:
        yield shell


@pytest.fixture
def peer(shell: Shell) -> Iterator[JsonPeer]:
    with json_peer(shell) as peer:
        yield peer


@pytest.fixture
def topic(shell: Shell) -> str:
    return shell.create(f"topic-{next(_numbers)}")
