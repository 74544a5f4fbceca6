"""The messages that every system is given: lines of JSON that differ, and that zstd makes a third or a quarter of."""

import random
from functools import cache

# More than a client puts into one batch, so that no batch holds a message twice: that would flatter any codec.
POOL_BYTES = 4_000_000
_EVENTS = ("page_view", "add_to_cart", "checkout", "search", "login")


@cache
def messages(size: int) -> tuple[bytes, ...]:
    """Of exactly `size` bytes, the same ones in every run."""
    chance = random.Random(size)
    return tuple(_message(chance, size) for _ in range(POOL_BYTES // size))


def _message(chance: random.Random, size: int) -> bytes:
    lines = []
    length = 0
    while length < size:
        number, event, cents = chance.getrandbits(64), chance.choice(_EVENTS), chance.randrange(50_000)
        line = f'{{"id": "{number:016x}", "event": "{event}", "user": {number % 99_991}, "price": {cents / 100}}}\n'
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()[:size]
