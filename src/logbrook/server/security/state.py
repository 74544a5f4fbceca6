"""Users, ACLs and quotas: the part of the metadata that security consists of.

The entries are in the metadata store, beside the topics. `Topics.change_security` writes them, and replays them here
once they are durable; in a cluster the changes of other brokers are replayed, too.
"""

from logbrook.core.acls import ACL_PREFIX, Acls
from logbrook.core.client_quotas import ClientQuotas
from logbrook.core.quota_entities import QUOTA_PREFIX
from logbrook.core.users import USER_PREFIX, Users


class SecurityState:
    """One per broker, on the event loop. Read by everyone; changed by `replay` only."""

    def __init__(self) -> None:
        self.users = Users()
        self.acls = Acls()
        self.quotas = ClientQuotas()

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
