"""The compaction worker: a process that cleans segments with compiled code for a broker that has none loaded.

`python -m logbrook.compactor` is started by `server/compaction_worker.py`. It opens segments read-only and sends back
the bytes to keep; only the broker writes into its data directory. `cleaner` has the compiled `Cleaner`.

Nothing imports this package: it loads numpy and numba, which the broker does without.
"""
