"""Batches of values are, byte for byte, those that are encoded record by record."""

from typing import Any

import pytest

from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.records.value_batches import ValueBatch, ValueRun

FIELDS: dict[str, Any] = {"producer_id": ProducerId(5), "producer_epoch": ProducerEpoch(2), "base_sequence": 77}


def records_of(run: ValueRun) -> list[Record]:
    keys = run.keys if run.keys is not None else [None] * len(run.values)
    values = [None if run.empty_is_null and not value else value for value in run.values]
    return [Record(key, value, tuple(run.headers), run.timestamp) for key, value in zip(keys, values, strict=True)]


def check(*runs: ValueRun, codec: Codec = Codec.NONE) -> None:
    expected = build_batch([record for run in runs for record in records_of(run)], codec=codec, **FIELDS)
    batch = ValueBatch()
    for run in runs:
        batch.add(run)
    assert batch.build(codec=codec, **FIELDS) == expected


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
def test_offset_deltas_of_every_size(count: int) -> None:
    check(ValueRun([b"v%d" % number for number in range(count)], None, 1_000))
    check(ValueRun([b"v"] * count, [b"k%d" % number for number in range(count)], 1_000))


def test_lengths_of_every_size() -> None:
    values = [b"x" * size for size in (0, 1, 50, 57, 63, 64, 65, 8000, 8191, 8192, 100_000)]
    check(ValueRun(values, None, 0))
    check(ValueRun(values, values[::-1], 0))


def test_runs_have_their_own_timestamps() -> None:
    check(ValueRun([b"a"] * 60, None, 500), ValueRun([b"b"] * 10, None, 400), ValueRun([b"c"], [b"k"], 10**12))


@pytest.mark.parametrize("keys", [None, [b"", b"k", b"long" * 40, b"k"]])
def test_headers_are_those_of_every_record(keys: list[bytes] | None) -> None:
    headers = (("ä", b"1"), ("null", None), ("long", b"x" * 100))
    check(ValueRun([b"a", b"", b"c" * 100, b"d"], keys, 5, headers), ValueRun([b"last"], None, 5))


@pytest.mark.parametrize("keys", [None, [b"", b"k", b"", b"long" * 40]])
def test_empty_values_are_null_if_asked_for(keys: list[bytes] | None) -> None:
    check(ValueRun([b"", b"a", b"b", b""], keys, 5, (("h", b"1"),), empty_is_null=True))
    check(ValueRun([b"a", b"b", b"c", b"d"], keys, 5, empty_is_null=True))


@pytest.mark.parametrize("codec", Codec)
def test_batches_are_compressed(codec: Codec) -> None:
    check(ValueRun([b"same"] * 100, None, 1), codec=codec)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        ValueBatch().build()
