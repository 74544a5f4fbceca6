"""How long a consumer group of ten members takes until every partition has its member, as a user's would."""

from collections.abc import Iterator

from bench.peers.lab import Lab, by_default
from bench.peers.results import Row, Samples
from bench.peers.system import System, Variant

_PARTITIONS = 20
_CHANGES = {
    "together": "ten members start together",
    "left": "one of ten leaves",
    "joined": "a tenth joins nine",
}


def run(lab: Lab) -> Iterator[Row]:
    samples = Samples("rebalance")
    with lab.serving(_if_it_has_groups) as everyone:
        for _ in lab.rounds("consumer groups of ten members", samples):
            for running in everyone:
                job = running.job(lab.topic(), partitions=_PARTITIONS)
                with lab.created(running, job):
                    found = running.call("rebalance", job)
                for change, what in _CHANGES.items():
                    samples.add(running.of, what, "until all is shared", "s", found[change])
    yield from samples.rows()


def _if_it_has_groups(system: System) -> Variant | None:
    """Groups of Redis and NATS share messages, not partitions: there is nothing to rebalance."""
    return by_default(system) if system.has_rebalances else None
