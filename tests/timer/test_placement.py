"""Where timer messages wait, and when they go out: as stock filed and delivered the recorded ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringmq.store.inferred_config import config_without_index
from ringmq.store.message_store import MessageStore
from ringmq.timer.placement import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, TIMER_ROLL_TIMES, exact_ms, place
from ringmq.timer.timer_log import Magic, TimerLog
from tests.archives import unpack

GOLDEN = Path(__file__).parents[1] / "golden" / "timer"
WINDOW_SLOTS, LOG_FILE_BYTES = 20, 10_240
NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("golden-timer")
    unpack(GOLDEN / "store-after-restart.tar.xz", target)
    return target


def test_every_recorded_unit_lies_where_the_rule_puts_it(store: Path) -> None:
    log, messages = TimerLog(store, LOG_FILE_BYTES), MessageStore(config_without_index(store)).commit_log
    kinds: dict[Magic, int] = {}
    for unit in log.units(0):
        record = messages.record_at(unit.commit_log_offset, 1 << 62, unit.size)
        assert record is not None
        found = place(
            int(record.properties[TIMER_OUT_MS]), write_ms=unit.enqueue_ms, open_ms=0,
            is_delete=TIMER_DEL_UNIQKEY in record.properties, window_slots=WINDOW_SLOTS, precision_ms=1000,
        )  # fmt: skip
        assert (found.slot_ms, found.delay_ms, found.magic) == (unit.slot_ms, unit.delay_ms, unit.magic), unit
        kinds[unit.magic] = kinds.get(unit.magic, 0) + 1
    assert min(kinds.values()) >= 1 and sum(kinds.values()) == 1305
    assert set(kinds) >= {Magic.DEFAULT, Magic.DEFAULT | Magic.ROLL, Magic.DEFAULT | Magic.DELETE}


def test_the_exact_time_is_that_which_the_sender_asked_for(store: Path) -> None:
    """A delay counts from the store time, which lies some milliseconds behind the recorded time of the send."""
    sent: list[dict[str, Any]] = json.loads((GOLDEN / "messages.json").read_text())["messages"]
    messages = MessageStore(config_without_index(store)).commit_log
    checked = 0
    for message in sent:
        for entry in message["wheelRecords"]:
            record = messages.record_at(entry["phyOffset"], 1 << 62, entry["size"])
            if record is None or message["askedDeliverMs"] is None or TIMER_DEL_UNIQKEY in record.properties:
                continue
            pairs, out_ms, asked_ms = record.properties, int(entry["TIMER_OUT_MS"]), message["askedDeliverMs"]
            found = exact_ms(pairs, record.store_time_ms, out_ms, 1000)
            assert out_ms < found <= out_ms + 1000
            if TIMER_ROLL_TIMES in pairs and "TIMER_DELIVER_MS" not in pairs:
                assert found == out_ms + 1000
            elif "TIMER_DELAY_SEC" in pairs or "TIMER_DELAY_MS" in pairs:
                assert asked_ms <= found <= asked_ms + 250 or found == out_ms + 1000, message["name"]
            else:
                assert found == asked_ms, message["name"]
            checked += 1
    assert checked > 40


@pytest.mark.parametrize(
    ("out_ms", "open_ms", "window", "slot_ms", "magic"),
    [
        (NOW_MS + 5000, NOW_MS, 20, NOW_MS + 5000, Magic.DEFAULT),
        (NOW_MS - 9000, NOW_MS, 20, NOW_MS, Magic.DEFAULT),  # late: the open slot
        (NOW_MS + 19_000, NOW_MS, 20, NOW_MS + 19_000, Magic.DEFAULT),
        (NOW_MS + 20_000, NOW_MS, 20, NOW_MS + 10_000, Magic.DEFAULT | Magic.ROLL),  # less than a third beyond
        (NOW_MS + 25_999, NOW_MS, 20, NOW_MS + 10_000, Magic.DEFAULT | Magic.ROLL),
        (NOW_MS + 26_000, NOW_MS, 20, NOW_MS + 20_000, Magic.DEFAULT | Magic.ROLL),
        (NOW_MS + 5000, NOW_MS + 60_000, 20, NOW_MS + 60_000, Magic.DEFAULT),  # the clock was set back
        (NOW_MS + 90_000, NOW_MS + 60_000, 20, NOW_MS + 60_000, Magic.DEFAULT | Magic.ROLL),  # rolled late
        (NOW_MS + 60_000, NOW_MS + 60_000, 20, NOW_MS + 60_000, Magic.DEFAULT),  # due before it could be rolled
    ],
)
def test_slots_by_example(out_ms: int, open_ms: int, window: int, slot_ms: int, magic: Magic) -> None:
    found = place(out_ms, write_ms=NOW_MS, open_ms=open_ms, is_delete=False, window_slots=window, precision_ms=1000)
    assert (found.slot_ms, found.magic, found.enqueue_ms) == (slot_ms, magic, NOW_MS)


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "4600", "TIMER_DELIVER_MS": str(NOW_MS + 1)}, 5120),
        ({"TIMER_DELAY_MS": "5250"}, 5370),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 5999)}, 5999),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 9999)}, 6000),  # beyond its slot: the slot's end
        ({"TIMER_DELIVER_MS": "1"}, 5001),  # before it: its first millisecond
        ({"TIMER_DELIVER_MS": "soon"}, 6000),
        ({"TIMER_DELAY_SEC": "5", "TIMER_ROLL_TIMES": "1"}, 6000),
        ({}, 6000),
    ],
)
def test_exact_times_by_example(pairs: dict[str, str], found: int) -> None:
    assert exact_ms(pairs, NOW_MS + 120, NOW_MS + 5000, 1000) - NOW_MS == found
