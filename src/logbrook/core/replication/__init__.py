"""Replication of one partition, as two state machines: its leader and its followers.

    leader      `PartitionLeader`: progress of the followers, high watermark, changes of the ISR
    follower    `PartitionFollower`: what to fetch, where to truncate, when to move the high watermark

Both are told what happened (a fetch, a sync, a new registration, the time) and return effects that the caller carries
out. They know offsets and epochs, not records. The rules are Kafka's, with one difference: what counts as replicated is
what is synced. A follower fetches again only when everything it has received is synced, so the fetch offset that it
reports is a durable end. The package imports `model` and the registrations of `core.cluster`.
"""
