"""The compiled cleaner keeps the same bytes as the pure one, of any log."""

from collections import Counter
from random import Random

import pytest

from logbrook.compactor import cleaner as compiled
from logbrook.compactor.cleaner import CompiledCleaner
from logbrook.model.identifiers import Offset
from logbrook.records.columns.cleaning import DigestMap
from logbrook.records.errors import CorruptBatchError
from logbrook.storage import cleaner as pure
from logbrook.storage.cleaner import Cleaner, PureCleaner
from logbrook.storage.compaction_state import OffsetMap
from tests.unit.compactor.random_logs import FileSource, RandomLog, random_log

DIGEST_KEY = bytes(range(16))
LOGS = 300


class Outcome:
    """The result of a pass: bytes and flags of each group."""

    def __init__(self, cleaner: Cleaner, groups: list[list[str]], lost_group: int | None) -> None:
        self.end_offset = cleaner.build_map()
        self.groups: list[tuple[bytes, bool, set[int]]] = []
        for number, paths in enumerate(groups):
            kept = bytearray()
            is_same = cleaner.clean(paths, kept.extend)
            self.groups.append((bytes(kept), is_same, set(cleaner.emptied)))
            if number == lost_group:
                cleaner.keep_markers()


def compiled_cleaner(log: RandomLog, entries_max: int) -> CompiledCleaner:
    return CompiledCleaner(log.job, log.files.open, DigestMap(entries_max, DIGEST_KEY))


@pytest.mark.parametrize("first_seed", range(0, LOGS, 50))
def test_both_cleaners_keep_the_same_bytes_of_random_logs(first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + 50):
        log, rng = random_log(seed), Random(seed)
        monkeypatch.setattr(compiled, "_WINDOW_BYTES", rng.choice((200, 5_000, 4 << 20)))
        monkeypatch.setattr(compiled, "_HEADERS_WINDOW_BYTES", rng.choice((200, 5_000)))
        entries_max = rng.choice((3, 40, 10_000))
        monkeypatch.setattr(pure, "OffsetMap", lambda _bytes_max, entries=entries_max: OffsetMap(200 * entries))
        paths = log.paths()
        cut = rng.randint(0, len(paths))
        groups = [group for group in (paths[:cut], paths[cut:]) if group]
        lost_group = rng.choice((None, 0))
        expected = Outcome(PureCleaner(log.job, FileSource(log)), groups, lost_group)
        actual = Outcome(compiled_cleaner(log, entries_max), groups, lost_group)
        assert vars(actual) == vars(expected), f"seed {seed}"
        seen["full"] += expected.end_offset < log.job.spans[-1].end_offset
        seen["same"] += any(is_same for _, is_same, _ in expected.groups)
        seen["changed"] += any(not is_same for _, is_same, _ in expected.groups)
        seen["emptied"] += any(emptied for _, _, emptied in expected.groups)
    assert min(seen[kind] for kind in ("full", "same", "changed", "emptied")) > 0, seen


def test_a_damaged_batch_is_an_error() -> None:
    log = random_log(1)
    path = log.paths()[-1]
    with_damage = log.files.open(path)
    size = log.job.spans[-1].size
    with_damage.pwrite(bytes([with_damage.pread(1, size - 1)[0] ^ 1]), size - 1)
    cleaner = compiled_cleaner(log, 1000)
    with pytest.raises(CorruptBatchError):
        cleaner.clean([path], lambda _kept: None)


def test_a_segment_that_is_too_short_is_an_error() -> None:
    log = random_log(2)
    path, size, _ = log.job.spans[-1]
    log.files.open(path).truncate(size - 1)
    with pytest.raises(CorruptBatchError):
        compiled_cleaner(log, 1000).clean([path], lambda _kept: None)


def sip_hash_vectors() -> list[tuple[bytes, bytes]]:
    """Return the first test vectors of SipHash-2-4-128 by its authors: inputs 00, 00 01, ... and their digests."""
    digests = (
        "a3817f04ba25a8e66df67214c7550293",
        "da87c1d86b99af44347659119b22fc45",
        "8177228da4a45dc7fca38bdef60affe4",
    )
    return [(bytes(range(size)), bytes.fromhex(digest)) for size, digest in enumerate(digests)]


@pytest.mark.parametrize(("key", "digest"), sip_hash_vectors())
def test_keys_are_digested_with_sip_hash(key: bytes, digest: bytes) -> None:
    key_map = DigestMap(12, DIGEST_KEY)
    key_map.put(key, Offset(7))
    slot = int(key_map.offsets.argmax())
    assert key_map.lows[slot].tobytes() + key_map.highs[slot].tobytes() == digest


def test_a_map_has_room_for_its_keys_and_no_more_memory_than_allowed() -> None:
    key_map = DigestMap.within(1 << 20, DIGEST_KEY)
    keys = [b"key%d" % number for number in range(key_map.room)]
    assert len(keys) > 20_000
    for number, key in enumerate(keys):
        key_map.put(key, Offset(number))
        key_map.put(key, Offset(number + 1))
    assert key_map.room == 0
    # While it grew, there was a map of half the size too.
    assert 1.5 * (key_map.lows.nbytes + key_map.highs.nbytes + key_map.offsets.nbytes) <= 1.01 * (1 << 20)
    assert all(key_map.is_newest(key, Offset(number + 1)) for number, key in enumerate(keys))
    assert not any(key_map.is_newest(key, Offset(number)) for number, key in enumerate(keys))
    assert key_map.is_newest(b"another", Offset(0))
