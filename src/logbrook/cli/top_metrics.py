"""What a broker's metrics say of its topics' traffic, where its port for operators can be reached."""

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from logbrook.model import TopicPartition
from logbrook.server.topics import METADATA

DEFAULT_PORT = 9644

_TIMEOUT_S = 1.0
_OK = 200
_BYTES_MAX = 64 << 20
_TOPIC_COUNTER = re.compile(r'^logbrook_topic_(\w+)_total\{topic="([^"]*)"\} (\S+)$', re.MULTILINE)
_WATERMARK = re.compile(r'^logbrook_partition_high_watermark\{topic="([^"]*)",partition="(\d+)"\}', re.MULTILINE)


@dataclass(frozen=True)
class TopicTraffic:
    """Counters by the middle of their names: messages_in, in_bytes, messages_out, out_bytes."""

    by_topic: dict[str, dict[str, float]] = field(default_factory=dict)
    partitions: frozenset[TopicPartition] = frozenset()

    def is_of(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether a broker tells these numbers that has just these partitions: it might be another one that happens
        to listen where metrics are looked for."""
        return self.partitions - {METADATA} == frozenset(partitions) - {METADATA}


def read_traffic(url: str) -> TopicTraffic | None:
    """None if nobody answers there, or nobody who knows."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    try:
        with closing(kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", f"{parts.path.removesuffix('/').removesuffix('/metrics')}/metrics")
            response = connection.getresponse()
            if response.status != _OK:
                return None
            text = response.read(_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, HTTPException, ValueError):
        return None
    return parse_traffic(text)


def parse_traffic(text: str) -> TopicTraffic:
    by_topic: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, topic, value in _TOPIC_COUNTER.findall(text):
        by_topic[topic][name] = float(value)
    partitions = frozenset(TopicPartition(topic, int(number)) for topic, number in _WATERMARK.findall(text))
    return TopicTraffic(dict(by_topic), partitions)
