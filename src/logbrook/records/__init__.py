"""Kafka's record batch v2, the one format of the wire, the disk and replication.

Import what you need from the modules: `batch` (the header, validation, stamping), `codecs`, `builder` and `reader`
(for the slow paths), and `columns`, which alone needs numpy, numba and pyarrow.
"""
