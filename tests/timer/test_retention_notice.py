"""Retention and waiting messages: the oldest record that is needed, the log line, the time that a record waits."""

import dataclasses

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import lib
from ringmq.timer.retention_notice import PERIOD_MS, OldestRecord, RetentionNotice
from ringmq.timer.worker import roll_slots, timer_settings
from tests.timer.test_topic_counts import FILE_BYTES, START_MS, Log


@pytest.mark.parametrize("seed", range(4))
def test_the_oldest_record_is_that_of_the_first_unit_that_waits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.timer.retention_notice.PIECE_UNITS", 1 + seed * 5)
    log = Log(seed, 70)
    oldest = OldestRecord(log.files)
    for open_ms in range(START_MS, START_MS + 10_000, 1000):
        waiting = [position for position, _, slot_ms, _ in log.units if slot_ms >= open_ms]
        wanted = None if not waiting else 100 * [unit[0] for unit in log.units].index(waiting[0])
        found = [oldest.offset(open_ms) for _ in range(80)]
        assert found[-1] == wanted
        assert set(found) <= {None, wanted}, "an older one is never named"


def test_a_deleted_file_is_passed_over() -> None:
    log = Log(0, 70)
    oldest = OldestRecord(log.files)
    log.memory.struct.log_begin = 2 * FILE_BYTES
    log.memory.struct.log = log.memory.table + 2
    log.memory.struct.file_count -= 2
    first = next(number for number, unit in enumerate(log.units) if unit[0] >= 2 * FILE_BYTES)
    assert oldest.offset(START_MS) == 100 * first
    assert lib.RMQ_TIMER_OLDEST_NONE < 0 and lib.RMQ_TIMER_OLDEST_UNKNOWN < 0


def test_a_line_comes_before_retention_takes_a_needed_record() -> None:
    lines: list[str] = []
    used = [75]
    notice = RetentionNotice(lines.append, lambda: used[0])

    def check(oldest: int | None, mono_ms: int) -> int:
        notice.check(oldest, first_file_end=2000, clean_percent=75, mono_ms=mono_ms)
        return len(lines)

    assert check(1000, 0) == 0, "retention waits for its hour"
    used[0] = 80
    assert check(1000, PERIOD_MS - 1) == 0, "once a minute"
    assert check(1000, PERIOD_MS) == 1
    assert "80 % used" in lines[0] and "make room" in lines[0]
    assert check(None, 3 * PERIOD_MS) == 1, "none is needed"
    assert check(2000, 4 * PERIOD_MS) == 1, "retention takes another file first"
    assert check(1999, 5 * PERIOD_MS) == 2


@pytest.mark.parametrize(
    ("hours", "window", "precision_ms", "slots"),
    [(72, 172_800, 1000, 172_800), (24, 172_800, 1000, 64_800), (24, 172_800, 100, 172_800), (1, 20, 1000, 20)],
)
def test_a_record_waits_for_less_than_its_retention(hours: int, window: int, precision_ms: int, slots: int) -> None:
    config = dataclasses.replace(
        BrokerConfig(), file_reserved_time=hours, timer_roll_window_slot=window, timer_precision_ms=precision_ms
    )
    assert roll_slots(config) == slots
    assert slots * precision_ms < hours * 3_600_000


def test_switches_reach_the_core() -> None:
    config = dataclasses.replace(
        BrokerConfig(), timer_skip_unknown_error=True, timer_flush_interval_ms=70, disk_max_used_space_ratio=60,
        timer_stop_enqueue=True,
    )  # fmt: skip
    settings = timer_settings(config)
    assert settings.skips_unknown_errors and settings.stops_enqueue and not settings.stops_dequeue
    assert (settings.flush_interval_ms, settings.clean_percent) == (70, 60)
