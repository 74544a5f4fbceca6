"""Import of a checkpoint that Spark's Kafka source wrote, so that a query with format("logbrook") continues from it.

A checkpoint is a directory. Its parts:

    metadata     the query's id
    offsets/N    the end offsets of micro-batch N, one per source; written before the batch runs
    commits/N    micro-batch N is complete
    state/       state of aggregations, joins and deduplication
    sources/K/   files of source K; for Kafka the offsets at which the query started

The import copies everything and rewrites `offsets`, in which the Kafka source has `{"orders": {"0": 120}}` and ours
also the topic's id. Batch ids, query id, watermark and state stay, so a batch that was not completed is repeated with
the same offsets under the same id. Offsets of other sources of the query are kept as they are.

Version 1 of the offset log has a line per source, version 2 a line `name:offset`. In both the first line is the
version, the second the metadata of the batch, and `-` stands for no offset.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from logbrook.client import LATEST
from logbrook.client.partition_requests import PartitionRequests, TopicMetadata
from logbrook.model import TopicPartition
from logbrook.spark.checkpoint_files import CheckpointFiles, CheckpointImportError
from logbrook.spark.offset_ranges import Offsets
from logbrook.spark.stream_reader import offset_document

_OFFSETS, _COMMITS, _SOURCES = "offsets", "commits", "sources"
_BATCH_ID = re.compile(r"[0-9]+")
_VERSIONS = ("v1", "v2")
# Version and metadata.
_HEADER_LINES = 2


class ImportedCheckpoint(NamedTuple):
    """The position at which the query continues: after the newest batch, or with it if it is not committed.

    `offsets` are the end offsets of the newest batch. `starting` are those at which the query began, and is None unless
    the newest batch is the first and is not committed: its start is not in the offset log.
    """

    batch_id: int
    is_committed: bool
    offsets: Offsets
    starting: Offsets | None

    @property
    def starting_option(self) -> str | None:
        """The value of `startingOffsets` with which the first batch is repeated exactly, or None."""
        return None if self.starting is None else json.dumps(_by_topic(self.starting))


class _OffsetLogEntry(NamedTuple):
    """One file of the offset log: version, metadata, and for each source its prefix and its offset as text."""

    version: str
    metadata: str
    sources: tuple[tuple[str, str], ...]

    def kafka_offsets(self) -> Offsets:
        """Return the offsets of all Kafka sources; of a partition that several read, the largest."""
        merged: Offsets = {}
        for _, text in self.sources:
            for partition, offset in (_kafka_offsets(text) or {}).items():
                merged[partition] = max(offset, merged.get(partition, 0))
        return merged

    def converted(self, topics: Mapping[str, TopicMetadata]) -> str:
        lines = [prefix + _converted(text, topics) for prefix, text in self.sources]
        return "\n".join([self.version, self.metadata, *lines])


def import_checkpoint(
    source: str,
    target: str,
    cluster: PartitionRequests,
    *,
    source_settings: Mapping[str, str] | None = None,
    target_settings: Mapping[str, str] | None = None,
) -> ImportedCheckpoint:
    """Write the checkpoint `source` to the new directory `target` in the form that the format `logbrook` reads.

    Both are paths or URIs, as of tables; the settings of their stores have the names of `storage.*`, and default to the
    environment. `source` is only read; its query must not be running. Raises CheckpointImportError, OptionError for a
    location that is not supported, or ClientError.
    """
    old, new = CheckpointFiles(source, source_settings), CheckpointFiles(target, target_settings)
    log = {batch_id: _read_entry(old, batch_id) for batch_id in _batch_ids(old, _OFFSETS)}
    if not log:
        raise CheckpointImportError(old.location, "there is no offset log in it; give the query's checkpointLocation")
    if not new.is_empty():
        raise CheckpointImportError(new.location, "the directory is not empty; give a new one")
    newest = max(log)
    offsets = log[newest].kafka_offsets()
    if not offsets:
        raise CheckpointImportError(old.location, f"batch {newest} has no offsets of Spark's Kafka source")
    topics = _checked_topics(old.location, offsets, cluster)
    is_committed = newest in _batch_ids(old, _COMMITS)
    starting = _initial_offsets(old) if newest == 0 and not is_committed else None
    converted = {f"{_OFFSETS}/{batch_id}": entry.converted(topics) for batch_id, entry in log.items()}
    # Checksums of the old offset log are not copied; Spark reads files without them.
    new.write_copy(old, excluding=lambda name: name.startswith(f"{_OFFSETS}/"), added=converted)
    return ImportedCheckpoint(newest, is_committed, offsets, starting)


def _checked_topics(directory: str, offsets: Offsets, cluster: PartitionRequests) -> dict[str, TopicMetadata]:
    """Return the topics by name. Raises CheckpointImportError unless every offset is one of this cluster's."""
    names = sorted({partition.topic for partition in offsets})
    topics = cluster.topics(names)
    for name in names:
        if name not in topics:
            raise CheckpointImportError(directory, f"its query reads topic {name!r}, which this cluster does not have")
    for partition in offsets:
        if partition.partition not in topics[partition.topic].partitions:
            raise CheckpointImportError(directory, f"its query reads {partition}, which this cluster does not have")
    ends = cluster.list_offsets(dict.fromkeys(offsets, LATEST))
    for partition, offset in sorted(offsets.items()):
        if offset > ends[partition]:
            raise CheckpointImportError(
                directory,
                f"its query has read {partition} up to offset {offset}, and the partition ends at {ends[partition]}: "
                "this is not the cluster that it read, or the topic was created again",
            )
    return topics


def _batch_ids(checkpoint: CheckpointFiles, log: str) -> list[int]:
    """Return the batch ids in a log; other files there are checksums and drafts."""
    return [int(name) for name in checkpoint.names(log) if _BATCH_ID.fullmatch(name)]


def _read_entry(checkpoint: CheckpointFiles, batch_id: int) -> _OffsetLogEntry:
    directory, name = checkpoint.location, f"{_OFFSETS}/{batch_id}"
    lines = checkpoint.read(name).split("\n")
    if lines[0] not in _VERSIONS or len(lines) <= _HEADER_LINES:
        raise CheckpointImportError(directory, f"{name} is not an offset log of version 1 or 2")
    is_named = lines[0] == "v2"
    sources = []
    for line in lines[_HEADER_LINES:]:
        source, colon, text = line.partition(":") if is_named else ("", "", line)
        sources.append((f"{source}{colon}", text))
    if any(_is_ours(text) for _, text in sources):
        raise CheckpointImportError(directory, "it is a checkpoint of Logbrook's source already; use it as it is")
    return _OffsetLogEntry(lines[0], lines[1], tuple(sources))


def _initial_offsets(checkpoint: CheckpointFiles) -> Offsets:
    """Return the offsets at which the query began, which the Kafka source keeps in sources/K/0."""
    initial: Offsets = {}
    for source in checkpoint.directories(_SOURCES):
        directory = f"{_SOURCES}/{source}"
        if "0" in checkpoint.names(directory):
            # A zero byte, the version, and the offsets.
            initial |= _kafka_offsets(checkpoint.read(f"{directory}/0").rpartition("\n")[2]) or {}
    return initial


def _converted(text: str, topics: Mapping[str, TopicMetadata]) -> str:
    """Return a source's offset in our form; unchanged if it is not one of the Kafka source.

    Earlier batches may have read a topic that is deleted by now; nothing continues there, so it is left out.
    """
    offsets = _kafka_offsets(text)
    if offsets is None:
        return text
    kept = {partition: offset for partition, offset in offsets.items() if partition.topic in topics}
    return json.dumps(offset_document(kept, topics))


def _kafka_offsets(text: str) -> Offsets | None:
    """Parse an offset of Spark's Kafka source, `{"topic": {"partition": offset}}`; None if it is another source's."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    offsets: Offsets = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict) or not _are_offsets(partitions.items()):
            return None
        offsets |= {TopicPartition(topic, int(number)): offset for number, offset in partitions.items()}
    return offsets


def _are_offsets(members: Iterable[tuple[str, Any]]) -> bool:
    return all(number.isdecimal() and type(offset) is int for number, offset in members)


def _is_ours(text: str) -> bool:
    try:
        document = json.loads(text)
    except ValueError:
        return False
    topics = document.values() if isinstance(document, dict) else ()
    return any(isinstance(topic, dict) and topic.keys() == {"id", "offsets"} for topic in topics)


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return by_topic
