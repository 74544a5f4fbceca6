"""The file `cluster-identity` of a data directory: the node, and the cluster, that it belongs to.

A directory without it belongs to a single node, or is new. Each of several data directories has the file, with an id of
its own, and names all of them: so a node notices that one was replaced or left out, whichever it is.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from logbrook.core.cluster.lifecycle import DirectoryIdentity
from logbrook.model import LogbrookError
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Files, Random
from logbrook.storage.durable_files import IO_FAILURES, read_sealed, write_sealed
from logbrook.storage.errors import StorageError, StorageOfflineError

_IDENTITY = "cluster-identity"


class SavedIdentity(NamedTuple):
    """The content of the file. `cluster_id` is empty before the first registration.

    `history_id` is the history of the metadata store at the last registration. `is_adopting` is set while the metadata
    of a single node is copied to the store (`adoption`). `lost_directories` counts the data directories of the last
    save that are not there.
    """

    node_id: BrokerId
    identity: DirectoryIdentity
    cluster_id: str = ""
    history_id: str = ""
    store_was_restored: bool = False
    is_adopting: bool = False
    lost_directories: int = 0


class WrongNodeError(LogbrookError):
    """The data directory belongs to another node of the cluster."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"the data directory belongs to node {expected}, not to node {actual}; use another --data")


class SingleNodeDirectoryError(LogbrookError):
    """The data directory has topics that no cluster knows."""

    def __init__(self) -> None:
        super().__init__(
            "the data directory belongs to a single node, and would lose its topics in a cluster; make it the first "
            "node of a new cluster with `logbrook cluster adopt`, start without --cluster, or use another --data"
        )


class ClusterDirectoryError(LogbrookError):
    """The data directory belongs to a node of a cluster."""

    def __init__(self, node_id: int) -> None:
        super().__init__(
            f"the data directory belongs to node {node_id} of a cluster; start with --cluster, or use another --data"
        )


class AdoptionPendingError(LogbrookError):
    """The adoption of the data directory by a cluster was interrupted."""

    def __init__(self) -> None:
        super().__init__("the adoption of the data directory was interrupted; run `logbrook cluster adopt` again")


def read_identity(directories: Sequence[Files]) -> SavedIdentity | None:
    """Return the identity that was saved last. Raises OSError or CorruptFileError."""
    contents = [content for files in directories if (content := read_sealed(files, _IDENTITY)) is not None]
    if not contents:
        return None
    # A directory that had failed may have an old one.
    newest = max(contents, key=lambda content: content.get("saves", 0))
    known = set(newest.get("directories", ()))
    present = {content.get("ownId", "") for content in contents}
    return SavedIdentity(
        BrokerId(newest["node"]),
        DirectoryIdentity(newest["directory"], tuple(newest["registrations"])),
        newest["cluster"],
        newest.get("storeHistory", ""),
        newest.get("storeRestored", False),
        newest.get("adopting", False),
        len(known - present),
    )


def save_identity(directories: Sequence[Files], saved: SavedIdentity, random: Random) -> None:
    """Save it in every data directory, except in those that fail. Raises OSError if all fail."""
    earlier = [_read_or_nothing(files) for files in directories]
    own_ids = [content.get("ownId") or random.token(8).hex() for content in earlier]
    content = {
        "cluster": saved.cluster_id,
        "node": saved.node_id,
        "directory": saved.identity.directory_id,
        "registrations": list(saved.identity.registration_ids),
        "storeHistory": saved.history_id,
        "storeRestored": saved.store_was_restored,
        "directories": own_ids,
        "saves": 1 + max(content.get("saves", 0) for content in earlier),
    } | ({"adopting": True} if saved.is_adopting else {})
    errors: list[OSError | StorageOfflineError] = []
    for files, own_id in zip(directories, own_ids, strict=True):
        try:
            write_sealed(files, _IDENTITY, content | {"ownId": own_id})
        except IO_FAILURES as error:
            errors.append(error)
    if len(errors) == len(directories):
        raise errors[0]


def _read_or_nothing(files: Files) -> dict[str, Any]:
    with suppress(*IO_FAILURES, StorageError):
        return read_sealed(files, _IDENTITY) or {}
    return {}


def check_directory(directories: Sequence[Files], *, has_logs: bool, is_cluster: bool) -> None:
    """Raises SingleNodeDirectoryError, ClusterDirectoryError or AdoptionPendingError if it cannot be started so."""
    saved = read_identity(directories)
    if saved is not None and saved.is_adopting:
        raise AdoptionPendingError
    if is_cluster and saved is None and has_logs:
        raise SingleNodeDirectoryError
    if not is_cluster and saved is not None:
        raise ClusterDirectoryError(saved.node_id)
