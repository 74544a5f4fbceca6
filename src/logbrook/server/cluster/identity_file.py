"""The file `cluster-identity` of a data directory: the node, and the cluster, that it belongs to.

A directory without it belongs to a single node, or is new.
"""

from typing import NamedTuple

from logbrook.core.cluster.lifecycle import DirectoryIdentity
from logbrook.model import LogbrookError
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Files
from logbrook.storage.durable_files import read_sealed, write_sealed

_IDENTITY = "cluster-identity"


class SavedIdentity(NamedTuple):
    """The content of the file. `cluster_id` is empty before the first registration.

    `history_id` is the history of the metadata store at the last registration. `is_adopting` is set while the metadata
    of a single node is copied to the store (`adoption`).
    """

    node_id: BrokerId
    identity: DirectoryIdentity
    cluster_id: str = ""
    history_id: str = ""
    store_was_restored: bool = False
    is_adopting: bool = False


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


def read_identity(files: Files) -> SavedIdentity | None:
    """Raises OSError or CorruptFileError."""
    content = read_sealed(files, _IDENTITY)
    if content is None:
        return None
    return SavedIdentity(
        BrokerId(content["node"]),
        DirectoryIdentity(content["directory"], tuple(content["registrations"])),
        content["cluster"],
        content.get("storeHistory", ""),
        content.get("storeRestored", False),
        content.get("adopting", False),
    )


def save_identity(files: Files, saved: SavedIdentity) -> None:
    """Raises OSError."""
    content = {
        "cluster": saved.cluster_id,
        "node": saved.node_id,
        "directory": saved.identity.directory_id,
        "registrations": list(saved.identity.registration_ids),
        "storeHistory": saved.history_id,
        "storeRestored": saved.store_was_restored,
    }
    write_sealed(files, _IDENTITY, content | ({"adopting": True} if saved.is_adopting else {}))


def check_directory(files: Files, *, has_logs: bool, is_cluster: bool) -> None:
    """Raises SingleNodeDirectoryError, ClusterDirectoryError or AdoptionPendingError if it cannot be started so."""
    saved = read_identity(files)
    if saved is not None and saved.is_adopting:
        raise AdoptionPendingError
    if is_cluster and saved is None and has_logs:
        raise SingleNodeDirectoryError
    if not is_cluster and saved is not None:
        raise ClusterDirectoryError(saved.node_id)
