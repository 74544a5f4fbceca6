"""Where the power went: the name of a state, by which it is found again.

A place is a path: a cut in the workload of a seed, and, where the recovery from that (and a few operations after it)
was recorded and cut in its turn, a second cut. It reads `seed/prefix:VARIANT:seed`, and so on for the second.
"""

from random import Random
from typing import NamedTuple

from logbrook.testing.variants import Variant


class Cut(NamedTuple):
    """How much of a journal had happened, and what the power loss left of what was pending."""

    prefix: int
    variant: Variant
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.prefix}:{self.variant.name}:{self.seed}"


class Place(NamedTuple):
    seed: int
    cuts: tuple[Cut, ...] = ()

    def __str__(self) -> str:
        return "/".join([str(self.seed), *map(str, self.cuts)])

    @classmethod
    def parse(cls, text: str) -> "Place":
        """What `str` wrote. Raises ValueError."""
        seed, *cuts = text.split("/")
        parsed: list[Cut] = []
        for cut in cuts:
            prefix, variant, variant_seed = cut.split(":")
            if variant not in Variant.__members__:
                raise ValueError(f"no such variant: {variant}")
            parsed.append(Cut(int(prefix), Variant[variant], int(variant_seed)))
        if not parsed:
            raise ValueError(f"{text} says no cut; a place reads like 17/230:TORN:0")
        return cls(int(seed), tuple(parsed))

    def then(self, cut: Cut) -> "Place":
        return Place(self.seed, (*self.cuts, cut))

    def random(self) -> Random:
        """What is drawn for this state, whatever was drawn for others."""
        return Random(str(self))
