"""Replication of one partition, as two state machines: its leader and its followers.

    leader      `PartitionLeader`: progress of the followers, high watermark, changes of the ISR
    follower    `PartitionFollower`: what to fetch, where to truncate, when to move the high watermark

Both are told what happened (a fetch, a sync, a new registration, the time) and return effects that the caller carries
out. They know offsets and epochs, not records. The rules are Kafka's, with one difference: what counts as replicated is
what is synced. A follower fetches again when everything it has received is synced, so that the fetch offset which it
reports is a durable end; below the leader's high watermark, where the leader does not count it, it does not wait (ADR
29). The package imports `model` and the registrations of `core.cluster`.
"""
