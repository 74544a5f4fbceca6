"""What a consumer subscribes to, read from the metadata it joins with.

The metadata is the consumers' own affair, a `ConsumerProtocolSubscription`. The coordinator reads just the part that
all of its versions begin with: a version and the topics. What does not read is an unknown subscription, never an
error: a group may use the protocol type `consumer` and its own format.
"""

from logbrook.core.fields import FieldReader
from logbrook.core.groups.errors import CorruptGroupRecordError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None when the metadata does not say."""
    reader = FieldReader(metadata, "the subscription of a consumer", CorruptGroupRecordError)
    try:
        if reader.int16() < 0:
            return None
        return frozenset([reader.string() for _ in range(reader.array_count(item_bytes_min=2))])
    except CorruptGroupRecordError:
        return None
