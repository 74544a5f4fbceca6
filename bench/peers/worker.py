"""The process that a load runs in: jobs come as lines of JSON, and so do the answers.

Whoever started it ends it by closing its input, or by a kill.
"""

import json
import sys
from typing import TextIO

from bench.peers.load import Job, Load, Spent

VERBS = frozenset(
    {
        "ready",
        "create",
        "delete",
        "produce",
        "consume",
        "acknowledged",
        "send_stamped",
        "receive_stamped",
        "wait_for_ack",
        "rebalance",
        "transactions",
    }
)


def load_named(name: str) -> Load:
    """Only what is used is imported: a worker for Redis needs nothing of Kafka's."""
    if name == "kafka":
        from bench.peers.kafka_load import KafkaLoad  # noqa: PLC0415

        return KafkaLoad()
    if name == "redis":
        from bench.peers.redis_load import RedisLoad  # noqa: PLC0415

        return RedisLoad()
    if name == "nats":
        from bench.peers.nats_load import NatsLoad  # noqa: PLC0415

        return NatsLoad()
    raise ValueError(f"there is no load {name}")


def main(jobs: TextIO, answers: TextIO) -> None:
    for line in jobs:
        asked = json.loads(line)
        assert asked["verb"] in VERBS, asked["verb"]
        load = load_named(asked["load"])
        try:
            result = getattr(load, asked["verb"])(Job(**asked["job"]))
            answer = {"result": result.as_json() if isinstance(result, Spent) else result}
        except Exception as error:
            # Whatever it is, it is the harness that has to know.
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
