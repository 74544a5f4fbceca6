"""Users, ACLs and quotas: the part of the metadata that security consists of.

The entries are in the metadata store, beside the topics. `Topics.change_security` writes them, and replays them here
once they are durable; in a cluster the changes of other brokers are replayed, too. Their memory is bounded, since
without authorization any client can create them.
"""

from collections.abc import Sequence

from logbrook.core.acls import ACL_PREFIX, Acls
from logbrook.core.client_quotas import ClientQuotas
from logbrook.core.quota_entities import QUOTA_PREFIX
from logbrook.core.users import USER_PREFIX, Users
from logbrook.model import LogbrookError

# What an entry takes besides its key and its value.
_ENTRY_BYTES = 512


class SecurityStateFullError(LogbrookError):
    """A change of users, ACLs or quotas would exceed `security.state_bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"users, ACLs and quotas take as much memory as security.state_bytes_max permits, {bytes_max} bytes; "
            "delete some, or raise the limit"
        )


class SecurityState:
    """One per broker, on the event loop. Read by everyone; changed by `replay` only."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self.users = Users()
        self.acls = Acls()
        self.quotas = ClientQuotas()
        # The counted memory of all entries, and that of each.
        self.bytes = 0
        self._sizes: dict[str, int] = {}
        self._bytes_max = bytes_max

    def checked(self, records: Sequence[tuple[str, bytes | None]]) -> Sequence[tuple[str, bytes | None]]:
        """Return the records of a change. Raises SecurityStateFullError if they need memory that there is not."""
        growth = sum(_size(key, value) - self._sizes.get(key, 0) for key, value in records)
        if self._bytes_max is not None and growth > 0 and self.bytes + growth > self._bytes_max:
            raise SecurityStateFullError(self._bytes_max)
        return records

    def has_key(self, key: str) -> bool:
        """True if the entry with this key of the metadata store belongs to security."""
        return key.startswith((USER_PREFIX, ACL_PREFIX, QUOTA_PREFIX))

    def replay(self, key: str, value: bytes | None) -> None:
        """Apply an entry, None if it is deleted. Raises ValueError."""
        if key.startswith(ACL_PREFIX):
            self.acls.replay(key, value)
        elif key.startswith(QUOTA_PREFIX):
            self.quotas.replay(key, value)
        else:
            self.users.replay(key, value)
        size = _size(key, value)
        self.bytes += size - self._sizes.pop(key, 0)
        if size:
            self._sizes[key] = size


def _size(key: str, value: bytes | None) -> int:
    return 0 if value is None else _ENTRY_BYTES + len(key) + len(value)
