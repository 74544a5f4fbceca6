"""Compiled loops of log compaction: a map from keys to offsets, and the removal of superseded records from batches.

The map is a hash table with linear probing, in three arrays that the caller owns: two words of a key's digest per slot,
and the newest offset of the key plus one, or 0 for an empty slot. The digest is SipHash-2-4 with 128 bits of output
(Aumasson and Bernstein, 2012), under a secret key that is drawn for each pass.

A record is read as `reader.iter_records` does without headers: a batch that it cannot decode is MALFORMED here, and a
batch is checked as a whole before its first key is added or its first byte is written.
"""

from typing import Any

import numpy as np

from logbrook.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    RECORD_BYTES_MIN,
    TIMESTAMP_TYPE_BIT,
)
from logbrook.records.columns.crc_kernels import read_word, write_big_endian
from logbrook.records.columns.decode_kernels import read_field, read_varint
from logbrook.records.columns.jit import (
    BYTE_POINTER,
    BYTES,
    BYTES_IN,
    LONG,
    LONGS,
    LONGS_IN,
    PAIR,
    TABLE,
    TRIPLE,
    compiled,
    copy_bytes,
    pointer,
    shifted,
    types,
)
from logbrook.records.columns.sections import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    END,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    POSITION,
    START,
    read_big_endian,
)

# How a row is handled. ROW_ASK: by the caller, in Python.
ROW_PLAIN, ROW_SKIP, ROW_ASK, ROW_LAST = range(4)

# Results of `clean_section` below 0.
MALFORMED, SAME = -1, -2

# Indexes into the array of the map's state: keys in the map, and keys for which the arrays have room.
ENTRIES, ENTRIES_MAX = range(2)

# Indexes into the array of a pass's constants.
FIRST_KEY, SECOND_KEY, NOW_MS, HORIZON_MS = range(4)

# Indexes into the array of totals.
IS_CHANGED, REBUILT = range(2)

_WORDS = types.uint64[::1]
_WORD_POINTER = types.CPointer(types.uint64)
_LONG_POINTER = types.CPointer(types.int64)
_WORD_PAIR = types.UniTuple(types.uint64, 2)
_QUAD = types.UniTuple(types.int64, 4)


@compiled(types.uint64, types.uint64, types.uint64)
def rotate(word: Any, by: Any) -> Any:
    return (word << by) | (word >> (np.uint64(64) - by))


@compiled(types.UniTuple(types.uint64, 4), types.uint64, types.uint64, types.uint64, types.uint64)
def sip_round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = rotate(v1, np.uint64(13)) ^ v0
    v0 = rotate(v0, np.uint64(32))
    v2 += v3
    v3 = rotate(v3, np.uint64(16)) ^ v2
    v0 += v3
    v3 = rotate(v3, np.uint64(21)) ^ v0
    v2 += v1
    v1 = rotate(v1, np.uint64(17)) ^ v2
    v2 = rotate(v2, np.uint64(32))
    return v0, v1, v2, v3


@compiled(_WORD_PAIR, BYTE_POINTER, LONG, LONG, types.uint64, types.uint64)
def digest_key(data: Any, position: Any, size: Any, first_key: Any, second_key: Any) -> Any:
    """Return the SipHash-2-4-128 of `size` bytes at `position`."""
    v0 = first_key ^ np.uint64(0x736F6D6570736575)
    v1 = second_key ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = first_key ^ np.uint64(0x6C7967656E657261)
    v3 = second_key ^ np.uint64(0x7465646279746573)
    end = position + size - size % 8
    while position < end:
        word = read_word(data, position, 8)
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    word = read_word(data, position, size % 8) | np.uint64(size & 0xFF) << np.uint64(56)
    v3 ^= word
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@compiled(LONG, _WORD_POINTER, _WORD_POINTER, _LONG_POINTER, LONG, types.uint64, types.uint64)
def find_slot(lows: Any, highs: Any, offsets: Any, slots: Any, low: Any, high: Any) -> Any:
    """Return the slot of a digest, or the empty slot where it belongs. There are fewer than 2^32 slots."""
    slot = np.int64((low >> np.uint64(32)) * np.uint64(slots) >> np.uint64(32))
    while offsets[slot] != 0 and (lows[slot] != low or highs[slot] != high):
        slot += 1
        if slot == slots:
            slot = np.int64(0)
    return slot


@compiled(types.void, _WORDS, _WORDS, LONGS_IN, _WORDS, _WORDS, LONGS)
def copy_slots(lows: Any, highs: Any, offsets: Any, new_lows: Any, new_highs: Any, new_offsets: Any) -> None:
    """Put the entries of a map into a larger one, which is empty."""
    low_words, high_words, newest = pointer(new_lows), pointer(new_highs), pointer(new_offsets)
    for number in range(offsets.size):
        if offsets[number] != 0:
            low, high = lows[number], highs[number]
            slot = find_slot(low_words, high_words, newest, new_offsets.size, low, high)
            low_words[slot], high_words[slot], newest[slot] = low, high, offsets[number]


@compiled(LONG, BYTES_IN, LONGS_IN, _WORDS, _WORDS, LONGS_IN, _WORDS)
def find_key(key: Any, digest_keys: Any, lows: Any, highs: Any, offsets: Any, digest: Any) -> Any:
    """Return the slot of a key, or the empty slot where it belongs, and store its digest in `digest`."""
    first_key, second_key = np.uint64(digest_keys[FIRST_KEY]), np.uint64(digest_keys[SECOND_KEY])
    digest[0], digest[1] = digest_key(pointer(key), np.int64(0), np.int64(key.size), first_key, second_key)
    return find_slot(pointer(lows), pointer(highs), pointer(offsets), offsets.size, digest[0], digest[1])


@compiled(types.UniTuple(types.int64, 6), BYTE_POINTER, LONG, LONG)
def read_record(data: Any, position: Any, end: Any) -> Any:
    """Return (end of the record or MALFORMED, timestamp delta, offset delta, key start, key length, value length)."""
    length, position = read_varint(data, position, end, 32)
    if length < 0 or length > end - position:
        return np.int64(MALFORMED), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    record_end = position + length
    timestamp_delta, position = read_varint(data, position + 1, record_end, 64)
    offset_delta, position = read_varint(data, position, record_end, 32)
    key_start, key_length, position = read_field(data, position, record_end)
    _, value_length, position = read_field(data, position, record_end)
    if position > record_end:
        return np.int64(MALFORMED), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    return record_end, timestamp_delta, offset_delta, key_start, key_length, value_length


@compiled(LONG, BYTE_POINTER, PAIR, PAIR, LONGS_IN, _WORDS, _WORDS, LONGS)
def digest_section(
    data: Any, section: Any, limits: Any, constants: Any, key_lows: Any, key_highs: Any, key_offsets: Any
) -> Any:
    """Digest the keys of `section`, a byte range. `limits` are record count and last offset delta.

    Return the number of keys, or MALFORMED. The offsets are relative to the base offset.
    """
    position, end = section
    count, last_offset_delta = limits
    if count < 0 or count > (end - position) // RECORD_BYTES_MIN:
        return np.int64(MALFORMED)
    first_key, second_key = np.uint64(constants[FIRST_KEY]), np.uint64(constants[SECOND_KEY])
    keys, previous_delta = np.int64(0), np.int64(-1)
    for _ in range(count):
        position, _, offset_delta, key_start, key_length, _ = read_record(data, position, end)
        if position == MALFORMED or offset_delta <= previous_delta or offset_delta > last_offset_delta:
            return np.int64(MALFORMED)
        previous_delta = offset_delta
        if key_length >= 0:
            low, high = digest_key(data, key_start, key_length, first_key, second_key)
            key_lows[keys], key_highs[keys], key_offsets[keys] = low, high, offset_delta
            keys += 1
    return keys if position == end else np.int64(MALFORMED)


@compiled(LONG, BYTES_IN, TABLE, LONGS_IN, LONG, LONGS_IN, _WORDS, _WORDS, LONGS, LONGS, _WORDS, _WORDS, LONGS)
def add_sections(
    data_in: Any,
    sections: Any,
    kinds: Any,
    row: Any,
    constants: Any,
    lows: Any,
    highs: Any,
    offsets: Any,
    state: Any,
    key_lows: Any,
    key_highs: Any,
    key_offsets: Any,
) -> Any:
    """Add the keys of the sections from `row` on to the map, as far as they are plain and the map has room.

    Return the first row that was not added. The last three arguments are space for a batch's keys.
    """
    data = pointer(data_in)
    low_words, high_words, newest = pointer(lows), pointer(highs), pointer(offsets)
    while row < sections.shape[0]:
        if kinds[row] == ROW_SKIP:
            row += 1
            continue
        count = sections[row, COUNT]
        if kinds[row] == ROW_ASK or count > state[ENTRIES_MAX] - state[ENTRIES]:
            break
        section = (sections[row, START], sections[row, END])
        limits = (count, sections[row, LAST_OFFSET_DELTA])
        keys = digest_section(data, section, limits, constants, key_lows, key_highs, key_offsets)
        if keys == MALFORMED:
            break
        base_offset = sections[row, BASE_OFFSET]
        for key in range(keys):
            low, high = key_lows[key], key_highs[key]
            slot = find_slot(low_words, high_words, newest, offsets.size, low, high)
            if newest[slot] == 0:
                low_words[slot], high_words[slot] = low, high
                state[ENTRIES] += 1
            newest[slot] = base_offset + key_offsets[key] + 1
        row += 1
    return row


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def write_varint(out: Any, position: Any, value: Any) -> Any:
    """Write `value` in zigzag encoding. Return the position after it."""
    rest = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while rest >= np.uint64(0x80):
        out[position] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(rest)
    return position + 1


@compiled(LONG, LONG)
def varint_size(value: Any) -> Any:
    rest = np.uint64(value << 1) ^ np.uint64(value >> 63)
    size = 1
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled(LONG, BYTE_POINTER, PAIR, BYTE_POINTER, LONG, LONG)
def write_rebased(data: Any, record: Any, out: Any, position: Any, by: Any) -> Any:
    """Write the record at this byte range with `by` added to its timestamp delta. Return the position after it."""
    start, end = record
    _, attributes = read_varint(data, start, end, 32)
    delta, rest = read_varint(data, attributes + 1, end, 64)
    delta = np.int64(np.uint64(delta) + np.uint64(by))
    position = write_varint(out, position, 1 + varint_size(delta) + end - rest)
    out[position] = data[attributes]
    position = write_varint(out, position + 1, delta)
    copy_bytes(shifted(out, position), shifted(data, rest), end - rest)
    return position + end - rest


@compiled(TRIPLE, BYTE_POINTER, LONGS_IN, LONGS_IN, _WORDS, _WORDS, LONGS_IN, LONGS)
def select_records(data: Any, row: Any, constants: Any, lows: Any, highs: Any, offsets: Any, records: Any) -> Any:
    """Select the records of a section that are kept, and store their byte ranges in `records`.

    Return (number of records kept or MALFORMED, largest timestamp of them, 1 if the batch needs a delete horizon).
    """
    nothing = np.int64(0)
    position, end, count = row[START], row[END], row[COUNT]
    if count < 0 or count > (end - position) // RECORD_BYTES_MIN:
        return np.int64(MALFORMED), nothing, nothing
    first_key, second_key = np.uint64(constants[FIRST_KEY]), np.uint64(constants[SECOND_KEY])
    base_offset, base_timestamp = row[BASE_OFFSET], row[BASE_TIMESTAMP]
    has_horizon = row[ATTRIBUTES] & DELETE_HORIZON_BIT != 0
    is_expired = has_horizon and base_timestamp <= constants[NOW_MS]
    kept, previous_delta, needs_horizon = np.int64(0), np.int64(-1), nothing
    max_timestamp = np.int64(-(2**63))
    low_words, high_words, newest = pointer(lows), pointer(highs), pointer(offsets)
    for _ in range(count):
        start = position
        position, timestamp_delta, offset_delta, key_start, key_length, value_length = read_record(data, start, end)
        if position == MALFORMED or offset_delta <= previous_delta or offset_delta > row[LAST_OFFSET_DELTA]:
            return np.int64(MALFORMED), nothing, nothing
        previous_delta = offset_delta
        if key_length >= 0:
            if value_length < 0 and is_expired:
                continue
            low, high = digest_key(data, key_start, key_length, first_key, second_key)
            slot = find_slot(low_words, high_words, newest, offsets.size, low, high)
            if newest[slot] > base_offset + offset_delta + 1:
                continue
            if value_length < 0 and not has_horizon:
                needs_horizon = np.int64(1)
        records[2 * kept], records[2 * kept + 1] = start, position
        max_timestamp = max(max_timestamp, np.int64(np.uint64(base_timestamp) + np.uint64(timestamp_delta)))
        kept += 1
    if position != end:
        return np.int64(MALFORMED), nothing, nothing
    return kept, max_timestamp, needs_horizon


@compiled(_QUAD, BYTE_POINTER, LONGS_IN, LONGS_IN, _WORDS, _WORDS, LONGS_IN, LONGS, BYTE_POINTER, LONG)
def clean_section(
    data: Any,
    row: Any,
    constants: Any,
    lows: Any,
    highs: Any,
    offsets: Any,
    records: Any,
    out: Any,
    position: Any,
) -> Any:
    """Write the records of a section that are kept to `position` of `out`.

    Return (number of records kept, MALFORMED or SAME; position after them; largest timestamp; 1 if their timestamp
    deltas are relative to the delete horizon of the pass). If it is MALFORMED or SAME, nothing is written.
    """
    kept, max_timestamp, needs_horizon = select_records(data, row, constants, lows, highs, offsets, records)
    if kept == MALFORMED or (kept > 0 and kept == row[COUNT] and needs_horizon == 0):
        return np.int64(MALFORMED if kept == MALFORMED else SAME), position, max_timestamp, needs_horizon
    if row[ATTRIBUTES] & TIMESTAMP_TYPE_BIT != 0 or kept == 0:
        max_timestamp = row[MAX_TIMESTAMP]
    if needs_horizon != 0:
        by = np.int64(np.uint64(row[BASE_TIMESTAMP]) - np.uint64(constants[HORIZON_MS]))
        for record in range(kept):
            byte_range = (records[2 * record], records[2 * record + 1])
            position = write_rebased(data, byte_range, out, position, by)
        return kept, position, max_timestamp, needs_horizon
    # Adjacent records are copied together.
    number = np.int64(0)
    while number < kept:
        start, end = records[2 * number], records[2 * number + 1]
        number += 1
        while number < kept and records[2 * number] == end:
            end = records[2 * number + 1]
            number += 1
        copy_bytes(shifted(out, position), shifted(data, start), end - start)
        position += end - start
    return kept, position, max_timestamp, needs_horizon


@compiled(LONG, BYTES_IN, LONGS_IN, LONGS_IN, _WORDS, _WORDS, LONGS_IN, LONGS, BYTES, LONGS)
def clean_records(
    data_in: Any,
    row: Any,
    constants: Any,
    lows: Any,
    highs: Any,
    offsets: Any,
    records: Any,
    out: Any,
    results: Any,
) -> Any:
    """Call `clean_section` for the records of one batch, whose results after the first are stored in `results`."""
    kept, end, max_timestamp, needs_horizon = clean_section(
        pointer(data_in), row, constants, lows, highs, offsets, records, pointer(out), np.int64(0)
    )
    results[0], results[1], results[2] = end, max_timestamp, needs_horizon
    return kept


@compiled(PAIR, BYTES_IN, TABLE, LONGS_IN, LONG, LONGS_IN, _WORDS, _WORDS, LONGS_IN, LONGS, BYTES, LONG, LONGS, LONGS)
def clean_sections(
    data_in: Any,
    sections: Any,
    kinds: Any,
    row: Any,
    constants: Any,
    lows: Any,
    highs: Any,
    offsets: Any,
    records: Any,
    out_in: Any,
    position: Any,
    rebuilt: Any,
    totals: Any,
) -> Any:
    """Write the batches from `row` on to `position` of `out`, as far as they are plain, without superseded records.

    Return (the first row that was not written, position after the last batch). `rebuilt` gets the position of each
    batch that was changed, whose checksum is to be computed.
    """
    data, out = pointer(data_in), pointer(out_in)
    while row < sections.shape[0] and kinds[row] != ROW_ASK:
        start, size = sections[row, POSITION], sections[row, END] - sections[row, POSITION]
        kept, end, max_timestamp, needs_horizon = np.int64(SAME), position, np.int64(0), np.int64(0)
        if kinds[row] != ROW_SKIP:
            kept, end, max_timestamp, needs_horizon = clean_section(
                data, sections[row], constants, lows, highs, offsets, records, out, position + HEADER_BYTES
            )
        if kept == MALFORMED:
            break
        if kept == 0 and kinds[row] == ROW_LAST and sections[row, COUNT] == 0:
            kept = np.int64(SAME)
        if kept == SAME:
            copy_bytes(shifted(out, position), shifted(data, start), size)
            position += size
        else:
            totals[IS_CHANGED] = 1
        if kept > 0 or (kept == 0 and kinds[row] == ROW_LAST):
            copy_bytes(shifted(out, position), shifted(data, start), HEADER_BYTES)
            write_big_endian(out, position + 8, 4, end - position - LENGTH_PREFIX_BYTES)
            write_big_endian(out, position + 35, 8, max_timestamp)
            write_big_endian(out, position + 57, 4, kept)
            if needs_horizon != 0:
                write_big_endian(out, position + 21, 2, sections[row, ATTRIBUTES] | DELETE_HORIZON_BIT)
                write_big_endian(out, position + 27, 8, constants[HORIZON_MS])
            rebuilt[totals[REBUILT]] = position
            totals[REBUILT] += 1
            position = end
        row += 1
    return row, position


@compiled(types.void, BYTES_IN, TABLE, LONGS)
def read_producer_ids(data_in: Any, sections: Any, producer_ids: Any) -> None:
    data = pointer(data_in)
    for row in range(sections.shape[0]):
        producer_ids[row] = read_big_endian(data, sections[row, POSITION] + 43, 8)
