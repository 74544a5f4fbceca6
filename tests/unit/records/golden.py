"""Batches that other clients wrote, and the records that are in each of them."""

import json
from pathlib import Path

from logbrook.records.record import Record

RECORDS = [
    Record(b"key-a", b"value one " * 4, (("h1", b"x"), ("h2", None)), 1_700_000_000_000),
    Record(None, b"value one " * 4, (), 1_700_000_000_007),
    Record(b"key-c", None, (), 1_699_999_999_999),
    Record(b"", b"", (("ü", b""),), 1_700_000_000_007),
]
GOLDEN = {
    f"{client}, {codec}": bytes.fromhex(batch)
    for client, batches in json.loads(Path(__file__).with_name("golden_batches.json").read_text()).items()
    if client != "note"
    for codec, batch in batches.items()
}
