"""How far a stream is, as Spark writes it into its checkpoint: the next offset of each partition, and the topic's id.

    {"orders": {"id": "5f0c…", "offsets": {"0": 120, "1": 97}}}

By the id a topic that was deleted and created again is told from the one that was being read.
"""

from collections.abc import Mapping
from typing import Any

from logbrook.client.cluster import TopicInfo
from logbrook.model import TopicPartition
from logbrook.spark.errors import SparkError

Offsets = dict[TopicPartition, int]


class CheckpointError(SparkError):
    """A checkpoint that this source did not write."""


def to_document(offsets: Mapping[TopicPartition, int], topics: Mapping[str, TopicInfo]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for partition, offset in sorted(offsets.items()):
        topic = document.setdefault(partition.topic, {"id": topics[partition.topic].id.hex(), "offsets": {}})
        topic["offsets"][str(partition.partition)] = offset
    return document


def offsets_in(document: Mapping[str, Any]) -> Offsets:
    """Raises CheckpointError."""
    try:
        return {
            TopicPartition(name, int(number)): int(offset)
            for name, topic in document.items()
            for number, offset in topic["offsets"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint has progress that this source did not write: {document!r}") from error


def ids_in(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Raises CheckpointError."""
    try:
        return {name: bytes.fromhex(topic["id"]) for name, topic in document.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint has progress that this source did not write: {document!r}") from error
