"""Deterministic state machines: a request is decided into records, and replayed records change the state.

`groups` and `transactions` are the coordinators, `metadata` the topics and settings, `fetch_sessions` the incremental
fetches. They do not import each other; `coordinator` (the contract of coordinator shards) and `timers` are shared.
Time and randomness are arguments. Imports `records`, `ports`, `config` and `model` only.
"""
