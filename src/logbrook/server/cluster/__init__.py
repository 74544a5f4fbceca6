"""A broker as a member of a cluster: its registration, the metadata it follows, and the partitions it replicates.

- `membership` registers the broker in the metadata store and renews its lease.
- `metadata_follower` keeps `core.metadata.ClusterMetadata` and `core.cluster.ClusterImage` up to date.
- `replicas` takes the role that the image gives this broker in each partition: `core.replication` decides, and this
  module appends, acknowledges, proposes and elects. `replica_fetcher` fetches from one leader, `replica_logs` creates
  and deletes the logs.
- `topics` creates and deletes topics in the store; `view` answers which broker leads what.
- `peer_connection` is the connection to another broker, and `peers` keeps one per broker.

`server.broker` creates these components if it is given a metadata store; a single node uses none of them. The package
imports the rest of `server`, and what that may import.
"""
