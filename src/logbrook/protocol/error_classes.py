"""Error codes by what a client does about them. `RETRIABLE`, in `error_codes`, is generated from Kafka's own list.

Sets overlap: NOT_LEADER_OR_FOLLOWER is retriable, once the metadata has been refreshed.
"""

from logbrook.protocol.error_codes import ErrorCode

# Kafka's InvalidMetadataException, and the two for which its consumer refreshes metadata as well.
REFRESH_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
# The coordinator has moved. One that is loading (COORDINATOR_LOAD_IN_PROGRESS) is still the right one.
REFRESH_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
# Retriable after milliseconds: a transaction is just being completed.
RETRY_SOON = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT})
# Retriable, because metadata of a new topic takes time to spread; to a caller that needs no new topic they are final.
UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# A member of a consumer group has to join the next generation.
REJOIN_GROUP = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
# Fatal: a newer producer has the transactional id, or the broker has bumped the epoch to abort the transaction.
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# The broker has lost the producer's sequence. A transaction is aborted and the next begins with a new epoch; a
# producer without one cannot go on.
ABORTABLE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
