"""How long a message takes from the call that sends it to the call that returns it, in two processes."""

from collections.abc import Iterator

from bench.peers.lab import Lab, promised
from bench.peers.load import QUANTILES
from bench.peers.results import Row, Samples
from bench.peers.system import Promise

_RATE = 1_000


def run(lab: Lab) -> Iterator[Row]:
    for promise in (Promise.LESS, Promise.DISK):
        with lab.serving(promised(promise)) as everyone:
            if not everyone:
                continue
            samples = Samples("end_to_end")
            what = f"1 KB, {_RATE:,} messages/s"
            for _ in lab.rounds(f"end to end, {promise}: {what}", samples, warm_ups=2):
                for running in everyone:
                    job = running.job(lab.topic(), rate=_RATE, count=int(_RATE * lab.amounts.latency_s))
                    with lab.created(running, job):
                        received = lab.workers.begin(running.system.load, "receive_stamped", job)
                        sent = lab.workers.begin(running.system.load, "send_stamped", job)
                        sent.result()
                        found = received.result()
                    for quantile in QUANTILES:
                        samples.add(running.of, what, f"send to receive, {quantile}", "ms", found[quantile])
            yield from samples.rows()
