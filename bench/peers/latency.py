"""How long an acknowledgement takes at a steady rate: acks=all of Kafka's clients, the answer to XADD, a PubAck."""

from collections.abc import Iterator

from bench.peers.lab import Lab, promised
from bench.peers.load import QUANTILES
from bench.peers.results import Row, Samples
from bench.peers.system import Promise

_RATES = (1_000, 10_000)
_RATE_REACHED = 0.95


def run(lab: Lab) -> Iterator[Row]:
    for promise in (Promise.LESS, Promise.DISK):
        with lab.serving(promised(promise)) as everyone:
            if not everyone:
                continue
            for running in everyone:
                job = running.job(lab.topic(), rate=_RATES[-1], count=int(_RATES[-1] * lab.amounts.warm_up_s))
                with lab.created(running, job):
                    running.call("acknowledged", job)
            for rate in _RATES:
                samples = Samples("latency")
                what = f"1 KB, {rate:,} messages/s"
                for _ in lab.rounds(f"latency, {promise}: {what}", samples):
                    for running in everyone:
                        job = running.job(lab.topic(), rate=rate, count=int(rate * lab.amounts.latency_s))
                        with lab.created(running, job):
                            found = running.call("acknowledged", job)
                        note = "" if found["rate"] > _RATE_REACHED * rate else "rate"
                        for quantile in QUANTILES:
                            samples.add(running.of, what, f"ack, {quantile}", "ms", found[quantile], note=note)
                yield from samples.rows()
