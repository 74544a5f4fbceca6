"""Metadata replayed from the log, or from a compacted log, equals the metadata that was decided."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logbrook.core.metadata import (
    ClusterMetadata,
    InvalidPartitionsError,
    MetadataError,
    MetadataRecord,
    TopicCollisionError,
    TopicExistsError,
    TopicNotFoundError,
)

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "a.b.c", "a_b.c"])
SETTINGS = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms", 'odd"näme']), st.text(max_size=3), max_size=2)


class Metadata(RuleBasedStateMachine):
    """Decisions in any order, beside a model that is as simple as can be: names to (id, partitions,
    settings, is hidden)."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = ClusterMetadata()
        self.log: list[MetadataRecord] = []
        self.topics: dict[str, tuple[bytes, int, dict[str, str], bool]] = {}
        self.epoch = -1
        self.ids_given = 0
        self.ids = 0

    def write(self, records: list[MetadataRecord]) -> None:
        self.log += records
        for key, value in records:
            self.metadata.replay(key, value)

    @rule(name=NAMES, count=st.integers(-1, 4), wanted=SETTINGS)
    def create(self, name: str, count: int, wanted: dict[str, str]) -> None:
        self.ids += 1
        topic_id = self.ids.to_bytes(16, "big")
        try:
            records = self.metadata.create_topic(name, count, wanted, topic_id)
        except TopicExistsError:
            assert name in self.topics
        except TopicCollisionError:
            assert name.replace(".", "_") in {topic.replace(".", "_") for topic in self.topics}
        except InvalidPartitionsError:
            assert count < 1
        else:
            self.write(records)
            self.topics[name] = (topic_id, count, wanted, True)

    @rule(name=NAMES)
    def finish_create(self, name: str) -> None:
        if name in self.topics and self.metadata.topics[name].is_creating:
            self.write(self.metadata.finish_create(name))
            self.topics[name] = (*self.topics[name][:3], False)

    @rule(name=NAMES, count=st.integers(0, 6))
    def add_partitions(self, name: str, count: int) -> None:
        known = self.topics.get(name)
        try:
            records = self.metadata.add_partitions(name, count)
        except TopicNotFoundError:
            assert known is None or known[3]
        except InvalidPartitionsError:
            assert known is not None
            assert count <= known[1]
        else:
            assert known is not None
            self.write(records)
            self.topics[name] = (known[0], count, known[2], False)

    @rule(name=NAMES, wanted=SETTINGS)
    def configure(self, name: str, wanted: dict[str, str]) -> None:
        known = self.topics.get(name)
        if known is None or known[3]:
            with pytest.raises(MetadataError):
                self.metadata.configure_topic(name, wanted)
            return
        self.write(self.metadata.configure_topic(name, wanted))
        self.topics[name] = (known[0], known[1], wanted, False)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        known = self.topics.get(name)
        if known is None:
            return
        if known[3]:
            self.write(self.metadata.finish_delete(name))
            del self.topics[name]
        else:
            self.write(self.metadata.begin_delete(name))
            self.topics[name] = (*known[:3], True)

    @rule()
    def start(self) -> None:
        self.write(self.metadata.begin_epoch())
        self.epoch += 1

    @rule(count=st.integers(1, 1_000))
    def reserve(self, count: int) -> None:
        self.write(self.metadata.reserve_producer_ids(count))
        assert self.metadata.next_producer_id == self.ids_given + count
        self.ids_given += count

    @rule(wanted=SETTINGS)
    def configure_broker(self, wanted: dict[str, str]) -> None:
        self.write(self.metadata.configure_broker(wanted))

    @rule()
    @precondition(lambda self: not self.metadata.cluster_id)
    def found(self) -> None:
        self.write(self.metadata.found_cluster("cluster"))

    @invariant()
    def is_as_expected(self) -> None:
        self.metadata.validate()
        assert self.metadata.epoch == self.epoch
        assert {
            name: (topic.id, topic.partition_count, dict(topic.settings), topic.is_hidden)
            for name, topic in self.metadata.topics.items()
        } == self.topics

    @rule()
    def restart(self) -> None:
        self.metadata = replayed(self.log)

    @rule(count=st.integers(0, 1_000))
    def compact_and_restart(self, count: int) -> None:
        """Keep the newest record per key before some offset, at its offset; then restart."""
        count = min(count, len(self.log))
        newest = {key: number for number, (key, _) in enumerate(self.log[:count])}
        kept = [self.log[number] for number in sorted(newest.values())]
        self.log = kept + self.log[count:]
        self.metadata = replayed(self.log)

    @rule()
    def drop_tombstones_and_restart(self) -> None:
        """Drop old tombstones, as compaction does when no older record of their key is left; then restart."""
        newest = dict(self.log)
        self.log = [(key, value) for key, value in newest.items() if value is not None]
        self.metadata = replayed(self.log)


def replayed(log: list[MetadataRecord]) -> ClusterMetadata:
    metadata = ClusterMetadata()
    for key, value in log:
        metadata.replay(key, value)
    return metadata


TestMetadata = Metadata.TestCase
TestMetadata.settings = settings(max_examples=60, stateful_step_count=30)
