"""The adoption of a single node's data directory: it becomes the first node of a new cluster, and nothing is copied.

    1. the directory is marked as being adopted: from now on no broker starts with it
    2. its logs get the ids of their topics
    3. topics, settings, users, ACLs and quotas are written to the metadata store, with this node as the only replica
    4. the cluster id is written, if the store has none: from now on the cluster exists
    5. the mark is removed, and then the metadata log of the single node

An adoption that was interrupted is repeated from the start; each step has the same result again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from logbrook.core.cluster.features import SUPPORTED
from logbrook.core.cluster.image import PartitionKey, encode_partition, partition_key
from logbrook.core.cluster.lifecycle import DirectoryIdentity
from logbrook.core.cluster.partition import NO_BROKER_EPOCH, NO_LEADER, PartitionRegistration
from logbrook.core.metadata import ClusterMetadata, MetadataRecord
from logbrook.core.store_state import StoreState
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import BrokerId, LeaderEpoch
from logbrook.ports import Clock, Random
from logbrook.ports.metadata_store import (
    Delete,
    MetadataStore,
    Operation,
    Put,
    Revision,
    StoreEntry,
    StoreTransaction,
    is_absent,
)
from logbrook.server.cluster.identity_file import (
    ClusterDirectoryError,
    SavedIdentity,
    WrongNodeError,
    read_identity,
    save_identity,
)
from logbrook.server.local_metadata_store import load_entries
from logbrook.server.security.state import SecurityState
from logbrook.server.topics import METADATA
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.errors import StorageError

# etcd takes 128 operations per transaction.
_OPERATIONS_MAX = 100


class AdoptionError(LogbrookError):
    """The data directory cannot be adopted; nothing has changed."""


class Adoption(NamedTuple):
    """The result of an adoption."""

    cluster_id: str
    topic_count: int
    partition_count: int


async def adopt(
    directory: AnyDirectory, node_id: BrokerId, store: MetadataStore, clock: Clock, random: Random
) -> Adoption:
    """Make an open data directory that of a node of the store's cluster, which must be new. The caller closes it.

    Raises AdoptionError, ClusterDirectoryError, WrongNodeError, StorageError, MetadataStoreError or OSError.
    """
    directories = [member.environment.files for member in directory.members]
    saved = read_identity(directories)
    if saved is not None:
        if not saved.is_adopting:
            raise ClusterDirectoryError(saved.node_id)
        if saved.node_id != node_id:
            raise WrongNodeError(saved.node_id, node_id)
    if METADATA not in directory:
        raise AdoptionError("the directory has no topics of a single node; start with --cluster at once")
    metadata = read_metadata(directory)
    known = _check(directory, metadata)
    records = metadata.adoption(node_id, {feature: levels.last for feature, levels in SUPPORTED.items()})
    cluster = records[-1]
    await _check_store(store, cluster, is_repeated=saved is not None)
    if saved is None:
        identity = DirectoryIdentity(random.token(16).hex())
        saved = SavedIdentity(node_id, identity, metadata.cluster_id, is_adopting=True)
        save_identity(directories, saved, random)
    _assign_topic_ids(directory, metadata, clock)
    puts = [*_registrations(metadata, node_id), *_puts(records[:-1]), *_security(directory)]
    await _write(store, puts, cluster)
    save_identity(directories, saved._replace(is_adopting=False), random)
    directory.delete(METADATA, clock.now_ms())
    return Adoption(metadata.cluster_id, sum(not topic.is_hidden for topic in metadata.topics.values()), len(known))


def read_metadata(directory: AnyDirectory) -> ClusterMetadata:
    """Return the topics and settings of a single node. Raises StorageError."""
    metadata, security = ClusterMetadata(), SecurityState()
    for key, entry in _entries(directory).items():
        if security.has_key(key):
            continue
        try:
            metadata.replay(key, entry.value)
        except ValueError as error:
            raise StorageError(f"the metadata cannot be read: {error}") from error
    return metadata


def _security(directory: AnyDirectory) -> list[Put]:
    """Return the users, ACLs and quotas of a single node, whose entries are the same in a cluster."""
    security = SecurityState()
    return [Put(key, entry.value) for key, entry in _entries(directory).items() if security.has_key(key)]


def _entries(directory: AnyDirectory) -> Mapping[str, StoreEntry]:
    """Raises StorageError."""
    state = StoreState(Revision(0))
    load_entries(directory.get(METADATA), state)
    return state.entries


def _check(directory: AnyDirectory, metadata: ClusterMetadata) -> set[TopicPartition]:
    """Return the partitions of all topics. Raises AdoptionError if there are logs of other partitions."""
    known = {partition for topic in metadata.topics.values() if not topic.is_hidden for partition in topic.partitions}
    hidden = {partition for topic in metadata.topics.values() if topic.is_hidden for partition in topic.partitions}
    unknown = [log.partition.directory for log in directory if log.partition not in known | hidden | {METADATA}]
    if unknown:
        raise AdoptionError(
            f"the data directory has partitions without a topic: {', '.join(sorted(unknown)[:5])}; move them away first"
        )
    return known


async def _check_store(store: MetadataStore, cluster: MetadataRecord, *, is_repeated: bool) -> None:
    """Raises AdoptionError if the store has another cluster, or this one from another directory."""
    entry = (await store.read_all()).entries.get(cluster[0])
    if entry is not None and not (is_repeated and entry.value == cluster[1]):
        raise AdoptionError("the cluster exists already; give --cluster the name of a new one")


def _assign_topic_ids(directory: AnyDirectory, metadata: ClusterMetadata, clock: Clock) -> None:
    """Mark each log with its topic, and delete those of topics whose creation or deletion was interrupted."""
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            if partition not in directory:
                continue
            if topic.is_hidden:
                directory.delete(partition, clock.now_ms())
            else:
                log = directory.get(partition)
                if log.state.topic_id != topic.id.hex():
                    log.save_state(replace(log.state, topic_id=topic.id.hex()))


def _registrations(metadata: ClusterMetadata, node_id: BrokerId) -> list[Put]:
    """Register the node as the only replica. It is elected when it starts, with the next leader epoch."""
    registration = PartitionRegistration(
        (node_id,), (node_id,), NO_LEADER, NO_BROKER_EPOCH, LeaderEpoch(max(0, metadata.epoch))
    )
    value = encode_partition(registration)
    return [
        Put(partition_key(PartitionKey(topic.id, number)), value)
        for topic in metadata.topics.values()
        if not topic.is_hidden
        for number in range(topic.partition_count)
    ]


def _puts(records: Sequence[MetadataRecord]) -> list[Put]:
    return [Put(key, value) for key, value in records if value is not None]


async def _write(store: MetadataStore, puts: Sequence[Put], cluster: MetadataRecord) -> None:
    """Write everything, and the cluster id last. Raises AdoptionError if another broker founded the cluster meanwhile.

    A transaction with an unknown outcome, of an earlier attempt, may have written the cluster id.
    """
    await _commit(store, puts)
    key, value = cluster
    assert value is not None
    if (await store.commit(StoreTransaction([is_absent(key)], [Put(key, value)]))).is_committed:
        return
    entry = (await store.read_all()).entries.get(key)
    if entry is None or entry.value != value:
        await _commit(store, [Delete(put.key) for put in puts])
        raise AdoptionError(
            "another broker has founded the cluster meanwhile; run `logbrook cluster adopt` again with another name"
        )


async def _commit(store: MetadataStore, operations: Sequence[Operation]) -> None:
    for first in range(0, len(operations), _OPERATIONS_MAX):
        await store.commit(StoreTransaction([], operations[first : first + _OPERATIONS_MAX]))
