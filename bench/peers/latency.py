"""Latency at a steady rate: from send to acknowledgement, and from send to receive in two processes.

An acknowledgement is the Produce response with acks=all for Kafka's protocol, the reply to XADD for Redis, and the
PubAck for NATS.
"""

from collections.abc import Iterator

from bench.peers.lab import Lab, promised
from bench.peers.load import QUANTILES
from bench.peers.results import Row, Samples

_ACK_RATES = (1_000, 10_000)
_END_TO_END_RATE = 1_000
_RATE_REACHED = 0.95


def measure_acks(lab: Lab) -> Iterator[Row]:
    for promise in lab.promises:
        with lab.serving(promised(promise)) as servers:
            if not servers:
                continue
            for running in servers:
                job = running.job(lab.topic(), rate=_ACK_RATES[-1], count=int(_ACK_RATES[-1] * lab.amounts.warm_up_s))
                with lab.created(running, job):
                    running.call("acknowledged", job)
            for rate in _ACK_RATES:
                samples = Samples("latency")
                what = f"1 KB, {rate:,} messages/s"
                for _ in lab.rounds(f"latency, {promise}: {what}", samples):
                    for running in servers:
                        job = running.job(lab.topic(), rate=rate, count=int(rate * lab.amounts.latency_s))
                        with lab.created(running, job):
                            latencies_ms = running.call("acknowledged", job)
                        note = "" if latencies_ms["rate"] > _RATE_REACHED * rate else "rate"
                        for quantile in QUANTILES:
                            samples.add(running.of, what, f"ack, {quantile}", "ms", latencies_ms[quantile], note=note)
                yield from samples.rows()


def measure_end_to_end(lab: Lab) -> Iterator[Row]:
    for promise in lab.promises:
        with lab.serving(promised(promise)) as servers:
            if not servers:
                continue
            samples = Samples("end_to_end")
            what = f"1 KB, {_END_TO_END_RATE:,} messages/s"
            for _ in lab.rounds(f"end to end, {promise}: {what}", samples, warm_ups=2):
                for running in servers:
                    count = int(_END_TO_END_RATE * lab.amounts.latency_s)
                    job = running.job(lab.topic(), rate=_END_TO_END_RATE, count=count)
                    with lab.created(running, job):
                        receiving = lab.workers.begin(running.system.load, "receive_stamped", job)
                        sending = lab.workers.begin(running.system.load, "send_stamped", job)
                        sending.result()
                        latencies_ms = receiving.result()
                    for quantile in QUANTILES:
                        samples.add(running.of, what, f"send to receive, {quantile}", "ms", latencies_ms[quantile])
            yield from samples.rows()
