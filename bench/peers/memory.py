"""What a server weighs at most while it is written to and read from; Redis keeps in memory what it is given."""

from collections.abc import Iterator

from bench.peers.lab import Lab, by_default, load_processes
from bench.peers.results import Row, Samples

_SIZE = 1_000


def run(lab: Lab) -> Iterator[Row]:
    samples = Samples("memory")
    count = lab.amounts.memory_bytes // _SIZE
    # Named without the amount: a quick run measures the same thing with less.
    what = "1 KB messages produced, then consumed"
    for _ in lab.rounds(f"memory under load: {lab.amounts.memory_bytes / 1e6:,.0f} MB", samples):
        for system in lab.systems:
            with lab.idle(system, by_default(system)) as running:
                running.server.launch()
                lab.first_ack(running)
                job = running.job(lab.topic(), size=_SIZE, count=count)
                with lab.created(running, job):
                    running.spend("produce", job, load_processes(system))
                    running.spend("consume", job)
                    samples.add(running.of, what, "largest RSS", "MiB", running.server.peak_rss_mib())
    yield from samples.rows()
