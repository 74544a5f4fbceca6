"""The operations that a client may perform on a resource, as Kafka's responses report them (KIP-430).

There is no authorizer, so every client may perform every operation that applies to the type of the resource. A response
has them as a bit field: bit N is set if the operation with the number N is allowed. A client has to ask for them.
"""

from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's operations on resources, with their numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


# The message of Kafka's SECURITY_DISABLED.
NO_AUTHORIZER = "No Authorizer is configured."


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

# The value of a response whose request did not ask: no bit field, but the least number of 32 bits.
NOT_REQUESTED = -(2**31)
CLUSTER_OPERATIONS = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.IDEMPOTENT_WRITE,
    *_CONFIGS,
)
TOPIC_OPERATIONS = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    *_CONFIGS,
)
GROUP_OPERATIONS = _bits(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS)
