"""Transactions: which producer may write under a transactional id, and how its transactions end.

`TransactionCoordinatorShard` (`shard`) is the entry point; `messages` has its requests and decisions, `errors` its
errors. Behind it, `transaction` holds the state of one transactional id and its transitions, `initializing` and
`ending` the rules of InitProducerId and EndTxn, and `records` the record formats of `__transaction_state`.

Imports the shared modules of `core` (`coordinator`, `timers`), and no other state machine.
"""
