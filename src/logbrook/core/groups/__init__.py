"""Consumer groups: membership by Kafka's classic group protocol, and committed offsets.

`GroupCoordinatorShard` (`shard`) is the entry point; `messages` has its requests and results, `errors` its errors.
Behind it, `group` and `member` hold the data, `rebalance` the state transitions, `membership` the rules of JoinGroup,
SyncGroup and LeaveGroup, `operation` the context of one request, `offsets` the committed and pending offsets,
`offset_rules` the rules of commit, deletion and retention, and `records` the record formats of `__consumer_offsets`.

Imports the shared modules of `core` (`coordinator`, `timers`), and no other state machine.
"""
