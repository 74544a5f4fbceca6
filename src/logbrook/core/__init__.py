"""Deterministic state machines: a request is decided into records, and replayed records change the state.

- Coordinators: `groups` and `transactions`. `coordinator` has the contract of their shards, `timers` their timers.
- Metadata of a broker: `metadata` (topics and settings), `acls`, `client_quotas`, `users` (SCRAM credentials), and
  `store_state`, the entries of a metadata store.
- A cluster: `cluster` (image, elections, placement, broker lifecycle), and `replication` (leader and follower of one
  partition), which uses the registrations of `cluster`.
- Connections: `fetch_sessions` (incremental fetches) and `failed_attempts` (delays after failed authentications).

These machines do not import each other, except `replication`. Time and randomness are arguments. The package imports
`records`, `ports`, `config` and `model` only.
"""
