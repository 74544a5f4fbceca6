"""A model of one replicated partition: the machines of `core.replication` and `core.cluster`, without brokers.

Logs are lists without retention. The network is a bag of messages that are delivered in any order, more than once or
never. The metadata store answers at once, never, or without saying what it did. Every broker has an image of its own
that lags behind the store. Each call is one step, and nothing happens between them, so a sequence of calls is a
complete schedule.

    state       logs, messages, brokers, and `ModelFaults`: planted bugs that the model must find
    cluster     lives of brokers, the store, roles
    model       `ReplicationModel`: clients, disks, fetches, and the judgement of what clients saw
    campaign    random schedules by seed (`python -m logbrook.testing.replication`)

An acknowledged record stays at its offset, a record that was read is never replaced, and the latest offset never falls.
The package imports `core` and `model`, and no server, storage or asyncio.
"""
