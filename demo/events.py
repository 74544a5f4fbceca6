"""Generates the demo's orders: JSON, with countries of different frequency and some truncated records."""

import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa

from logbrook.client import Client, Producer
from logbrook.records.columns import encode

COUNTRIES = {"DE": 30, "FR": 22, "ES": 14, "IT": 12, "NL": 9, "PL": 8, "SE": 5}
PRODUCTS = {"tea": 3.5, "kettle": 39.0, "mug": 9.9, "scale": 24.5, "grinder": 89.0}
_BATCH_ROWS = 1_000


def orders(count: int, span_s: float, random_: random.Random) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield key, value and time in ms of `count` orders over the last `span_s` seconds. Every 500th is truncated."""
    ends_s = time.time()
    for number in range(count):
        at_s = ends_s - span_s * (1 - number / count) + random_.uniform(-20, 0)
        product = random_.choice(list(PRODUCTS))
        customer = f"customer-{random_.randrange(500)}"
        order = {
            "id": number,
            "customer": customer,
            "country": random_.choices(list(COUNTRIES), list(COUNTRIES.values()))[0],
            "product": product,
            "quantity": random_.randint(1, 4),
            "price": PRODUCTS[product],
            "at": datetime.fromtimestamp(at_s, UTC).isoformat(),
        }
        value = json.dumps(order).encode()
        yield customer.encode(), value[:40] if number % 500 == 499 else value, round(at_s * 1000)


def feed(bootstrap_servers: str, topic: str, count: int, span_s: float) -> None:
    """Produce `count` orders to the partitions of `topic`, batch by batch in turn."""
    random_ = random.Random(7)
    with Client(bootstrap_servers) as client, Producer(client) as producer:
        partitions = client.partitions(topic)
        rows = list(orders(count, span_s, random_))
        for number, first in enumerate(range(0, len(rows), _BATCH_ROWS)):
            keys, values, times_ms = zip(*rows[first : first + _BATCH_ROWS], strict=True)
            records = pa.RecordBatch.from_pydict(
                {
                    "key": pa.array(keys, pa.binary()),
                    "value": pa.array(values, pa.binary()),
                    "timestamp": pa.array([time_ms * 1000 for time_ms in times_ms], pa.timestamp("us", tz="UTC")),
                }
            )
            partition = partitions[number % len(partitions)]
            for batch in encode(
                records,
                now_ms=round(time.time() * 1000),
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=producer.next_sequence(topic, partition),
            ):
                producer.send(topic, partition, batch)
        producer.flush()
