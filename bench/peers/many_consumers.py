"""Loads with many consumers in one process: several that read everything at once, and groups that are idle."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Event

from confluent_kafka import Consumer, TopicPartition

from bench import librdkafka
from bench.peers.load import WAIT_S_MAX, Job, LoadError, Spent, passes_of, spending

_CONSUME_S_MAX = 30.0
_POLL_S = 0.05
# Both are librdkafka's defaults and Kafka's: a heartbeat every 3 s, and a Fetch that waits for 500 ms.
_GROUP_SETTINGS = {"auto.offset.reset": "latest", "log_level": 2}


def fan_out(job: Job) -> Spent:
    """Read `stored` messages with `connections` consumers at once, each all of them, until `count` are read."""
    librdkafka.get_ready()
    started = Barrier(job.connections + 1)

    def read(consumer: librdkafka.Consumer) -> tuple[int, int]:
        started.wait()
        return consumer.consume(job.stored, _CONSUME_S_MAX, passes_of(job))

    with ExitStack() as stack, ThreadPoolExecutor(job.connections) as pool:
        consumers = [
            stack.enter_context(librdkafka.consuming(job.address, job.topic, job.partitions))
            for _ in range(job.connections)
        ]
        reading = [pool.submit(read, consumer) for consumer in consumers]
        with spending(0) as spent:
            started.wait()
            results = [future.result() for future in reading]
    for count, size in results:
        if size != count * job.size:
            raise LoadError(f"{count} messages have {size} bytes, expected {count * job.size}")
    spent.messages = sum(count for count, _ in results)
    return spent


def hold_idle_groups(job: Job) -> None:
    """Join `connections` groups of one member each, write the file `ready`, and leave when the file is deleted."""
    ready = Path(job.settings["ready"])
    members = [
        Consumer({"bootstrap.servers": job.address, "group.id": f"{job.topic}-{number}", **_GROUP_SETTINGS})
        for number in range(job.connections)
    ]
    assigned: set[int] = set()

    def note(consumer: Consumer, _: list[TopicPartition]) -> None:
        assigned.add(id(consumer))

    try:
        for member in members:
            member.subscribe([job.topic], on_assign=note)
        until_s = time.monotonic() + WAIT_S_MAX
        while len(assigned) < len(members):
            for member in members:
                member.poll(0)
            if time.monotonic() > until_s:
                raise LoadError(f"{len(assigned)} of {len(members)} groups have their partitions")
            Event().wait(_POLL_S)
        ready.touch()
        while ready.exists():
            # Without a poll, a member leaves its group after five minutes.
            for member in members:
                member.poll(0)
            Event().wait(_POLL_S)
    finally:
        for member in members:
            member.close()
