"""Kafka's record batch v2, the format on the wire and on disk.

- `batch`: the batch header, validation, and stamping of offsets and timestamps. All that an append needs.
- `record_count`: a cheap check of a produced batch's record count; `inspection`: the thorough one, and recompression.
- `record`: records and the varint encoding inside a batch. `reader` decodes a batch record by record and `builder`
  encodes one, for compaction, internal topics and tools; `control` has transaction markers.
- `codecs`: compression, with `frames` for bounding the decompressed size.
- `fields`: primitive fields of coordinator records and of the consumer protocol.
- `columns`: batches to Arrow columns and back, in compiled code. Only it imports numpy, numba and pyarrow.

The package imports only `model`.
"""
