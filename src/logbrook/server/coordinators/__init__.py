"""Group and transaction coordinators on the event loop.

`CoordinatorRuntime` (`runtime`) connects the shards of one coordinator, state machines in `core`, to the partitions of
its internal topic (`internal_topic`): it loads, appends, replays and ticks, and releases replies (`context`).
`GroupCoordinatorService` (`groups`) and `TransactionCoordinatorService` (`transactions`) offer the requests to the
handlers, each on a runtime of its own. `MarkerWriter` (`marker_writer`) writes the markers of transactions.

May import `core`, `storage`, `records` and the append path of `server`; handlers import it, not the other way round.
"""
