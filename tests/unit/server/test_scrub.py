"""The scrub: it finds damage that no reader has met, goes on after a restart, and pauses between rounds."""

import asyncio

import pytest

from logbrook.server import scrub as scrub_module
from logbrook.server.scrub import ScrubPosition
from logbrook.storage.errors import CorruptLogError, LogModifiedError
from logbrook.storage.paths import SCRUB
from logbrook.storage.truncation import truncate
from logbrook.storage.verification import VerificationTotals
from logbrook.testing import MemoryFiles
from logbrook.testing.clock import FakeClock
from logbrook.testing.processes import wait_until
from tests.unit.server.shell_kit import Shell, batch_of

A_WEEK_MS = 7 * 86_400_000


def fill(shell: Shell, topic: str, segments: int) -> None:
    """Create a topic with closed segments of one batch each, and an active one."""
    shell.create(topic)

    def append() -> None:
        for _ in range(segments):
            shell.log(topic).append(batch_of(100, b"k"), now_ms=0)
            shell.log(topic).roll()

    shell.call(append)


def flip(files: MemoryFiles, path: str) -> None:
    file = files.open(path)
    last = file.pread(1, file.size() - 1)
    file.pwrite(bytes([last[0] ^ 1]), file.size() - 1)
    file.close()


def scrub(shell: Shell, position: ScrubPosition | None = None) -> bool:
    scrubber = shell.broker.maintenance.scrubber
    return asyncio.run_coroutine_threadsafe(scrubber.run_round(position), shell.services.loop).result(30)


def test_every_byte_of_every_log_is_read() -> None:
    with Shell() as shell:
        fill(shell, "a", 3)
        fill(shell, "b", 2)
        assert scrub(shell)
        scrubber = shell.broker.maintenance.scrubber
        assert (scrubber.rounds_finished, scrubber.progress) == (1, 1.0)
        assert scrubber.bytes_read == sum(log.size for log in shell.broker.maintenance.logs())


def test_a_flipped_bit_in_a_closed_segment_is_found(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell:
        fill(shell, "a", 3)
        fill(shell, "b", 3)
        damaged = shell.log("a").closed[1].path
        shell.call(lambda: flip(files, damaged))
        assert scrub(shell)
        error = shell.log("a").corruption
        assert isinstance(error, CorruptLogError)
        assert error.file == damaged
        assert shell.log("b").corruption is None
        assert "scrub found damage" in caplog.text


def test_a_round_continues_after_its_last_segment() -> None:
    with Shell() as shell:
        fill(shell, "a", 2)
        fill(shell, "b", 2)
        last = shell.log("b").closed[1]
        assert scrub(shell, ScrubPosition(0, "b-0", shell.log("b").closed[0].base_offset))
        assert shell.broker.maintenance.scrubber.bytes_read == last.size + shell.log("b").active.size


def test_the_position_is_kept_and_the_next_round_waits_for_the_interval() -> None:
    files, clock = MemoryFiles(), FakeClock(1_000)
    with Shell(files=files, clock=clock) as shell:
        fill(shell, "a", 1)
        assert scrub(shell)
        scrubber = shell.broker.maintenance.scrubber
        saved = scrubber._load()
        assert (saved.began_ms, saved.is_finished) == (clock.now_ms(), True)
    with Shell(files=files, clock=clock) as shell:
        assert shell.broker.maintenance.scrubber._load() == saved
        # A damaged file is no reason to stop: the scrub begins again.
        shell.call(lambda: flip(files, SCRUB))
        assert shell.broker.maintenance.scrubber._load() == ScrubPosition(clock.now_ms())


def test_a_round_that_cannot_be_recorded_on_a_full_disk_is_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrub_module, "_FIRST_ROUND_S", 0.0)
    files = MemoryFiles()
    with Shell(files=files) as shell:
        files.capacity_bytes = files.used_bytes()
        scrubber = shell.broker.maintenance.scrubber
        running = asyncio.run_coroutine_threadsafe(scrubber.run(), shell.services.loop)
        assert wait_until(lambda: scrubber.rounds_finished > 0, 30)
        # Several times as long as a round takes.
        assert not wait_until(lambda: scrubber.rounds_finished > 1, 0.3)
        files.capacity_bytes = None
        running.cancel()


def test_a_log_that_is_truncated_while_it_is_read_is_not_damaged(caplog: pytest.LogCaptureFixture) -> None:
    """As a follower's by a new leader, between two steps. A verification on demand begins again."""
    with Shell() as shell:
        fill(shell, "a", 3)
        log, maintenance = shell.log("a"), shell.broker.maintenance
        shell.call(lambda: log.append(batch_of(100, b"k"), now_ms=0))
        totals: list[VerificationTotals] = []

        async def truncate_and_go_on(_: int = 0) -> bool:
            truncate(log, log.closed[-1].base_offset)
            return True

        def truncate_once(progress: VerificationTotals) -> bool:
            if not totals:
                truncate(log, log.closed[-1].base_offset)
            totals.append(progress)
            return True

        async def scrub_segment() -> None:
            with pytest.raises(LogModifiedError):
                await maintenance.verify_segment(log, log.active.base_offset, truncate_and_go_on)

        asyncio.run_coroutine_threadsafe(scrub_segment(), shell.services.loop).result(30)
        assert log.log_end_offset == 2
        result = asyncio.run_coroutine_threadsafe(maintenance.verify(log, truncate_once), shell.services.loop).result(
            30
        )
        assert result is not None
        assert (result.damage, result.batches, log.log_end_offset) == (None, 1, 1)
        assert log.corruption is None
        assert scrub(shell)
        assert "scrub found damage" not in caplog.text
