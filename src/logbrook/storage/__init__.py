"""The log engine: partitions as segmented logs in a data directory, with recovery, retention and compaction.

Main types: `log_directory.LogDirectory` (a data directory), `log.Log` (a partition), `segment.Segment` with
`active_segment.ActiveSegment` and `closed_segment.ClosedSegment`, `wal.Wal` (the shared write-ahead log),
`pending_append.PendingAppend` (an append until it is durable), `environment.Environment` (shared by the logs of a
directory). `docs/STORAGE.md` describes the files and the guarantees.

An append: `log.Log.append` validates the batches (`batch_set`), checks sequences (`producer_state`), stamps offsets,
writes to the active segment (`active_segment`, `index`) and submits the bytes to the durability policy: `wal` with
`committer`, or `durability.IntervalDurability`. The `PendingAppend` completes when the policy's guarantee holds, which
advances the high watermark.

A read: `log_reading.ReadableLog.read` selects the segments, `segment` finds positions through `index` and batch
headers, and `open_files.FileReader` reads the bytes into pooled buffers. READ_COMMITTED readers also get aborted
transactions from `transaction_index`.

A recovery: `LogDirectory.open` calls `directory_recovery`, which reads the checkpoint and metadata (`partition_files`)
and the write-ahead log (`wal_format`), redoes its entries, and recovers each log from its recovery point (`recovery`).

Maintenance, each in bounded steps called by the owner: `checkpoint`, `retention`, `compaction` (with `compaction_state`
and `segment_files`), `truncation`, `verification`, `repair`, `batch_skip`.

The owner of a `LogDirectory` calls it from one thread; docstrings name the steps that may run elsewhere. The package
imports `config`, `model`, `ports` and `records`, never sockets, protocol messages, clocks or `os`: disk, time and
randomness come in through `ports`. Only `committer` starts a thread.
"""
