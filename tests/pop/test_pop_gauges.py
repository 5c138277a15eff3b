"""Gauges of a running broker: ages of open messages, polls, bounds, the image. The words and the page of metrics."""

import time
import urllib.request
from pathlib import Path

from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import ffi, lib
from ringmq.pop.backlog import INTERVAL_MS, STEP_ENTRIES, STEP_MS, Backlog
from ringmq.pop.revival_words import Gauge
from ringmq.pop.window_memory import WindowMemory
from ringmq.remoting.codes import RequestCode
from tests.broker.exporter_kit import samples
from tests.pop.pop_client import PopClient, pop_fields
from tests.pop.window_pair import NativeWindows
from tests.waiting import wait_dispatched, wait_until

GRACE_MS = 1000


def page(broker: RunningBroker) -> dict[str, float]:
    """The values of POP by name, with `cause` or `result` behind it."""
    with urllib.request.urlopen(f"{broker.metrics_url}/metrics", timeout=30) as answer:
        found = samples(answer.read().decode())
    return {
        " ".join([one.name, *(one.labels[key] for key in ("cause", "result", "le") if key in one.labels)]): one.value
        for one in found if "_pop_" in one.name
    }  # fmt: skip


def test_gauges_follow_open_messages_and_polls(tmp_path: Path) -> None:
    settings = {"maxPopPollingSize": 77, "ringmqPopOpenMax": 5000, "ringmqOffsetsMax": 65_536}
    with RunningBroker(tmp_path / "store", settings) as broker:
        client = PopClient(broker.address, "G", "T")
        for number in range(3):
            assert client.raw.send("T", b"%d" % number).code == 0
        wait_dispatched(tmp_path / "store")
        began = time.monotonic()
        first, *others = client.pop(invisible_ms=60_000)
        assert len(others) == 2, "one pop has all, so they have one entry"
        wait_until(lambda: page(broker)["ringmq_pop_oldest_open_seconds"] > 1.5, "the oldest one is seen and ages")
        assert page(broker)["ringmq_pop_oldest_open_seconds"] <= time.monotonic() - began + 1
        assert client.ack(first).code == 0
        wait_until(lambda: page(broker)["ringmq_pop_acked_seconds_count"] == 1, "the time to the ack counts")
        seen = page(broker)
        assert seen["ringmq_pop_acked_seconds_bucket 1.024"] == 0, "1.5 s have passed"
        assert 1.5 < seen["ringmq_pop_acked_seconds_sum"] < 100
        fields = pop_fields("G", "T", 32, 1000, -1, pollTime=15_000)
        client.raw.send_request(RequestCode.POP_MESSAGE, fields)
        wait_until(lambda: page(broker)["ringmq_pop_polls"] == 1, "the poll waits")
        wait_until(lambda: page(broker)["ringmq_pop_unsaved_seconds"] == 0, "the image has all")
        seen = page(broker)
        assert seen["ringmq_pop_polls_max"] == 77
        assert (seen["ringmq_pop_windows"], seen["ringmq_pop_windows_max"]) == (4, 65_536)
        assert seen["rocketmq_pop_checkpoint_buffer_size"] == seen["ringmq_pop_entries"] == 1
        assert seen["ringmq_pop_snapshot_fault no_room"] == seen["ringmq_pop_snapshot_fault failed"] == 0
        client.close()
        assert broker.stop() == 0, "the last words of the worker, whose polls are forgotten"


def test_looks_tell_due_messages_and_the_oldest_ones() -> None:
    windows = NativeWindows(WindowMemory(4, STEP_ENTRIES + 10), 0, 0)
    place, words = windows.make(1, 0, 0, 0), [0] * 64
    backlog = Backlog(windows.native, words, lambda: GRACE_MS)
    wall_ms = time.time_ns() // 1_000_000

    def give(count: int, popped_ms: int, invisible_ms: int) -> None:
        start = int(windows.memory.window(place).next_offset)
        pop = ffi.new("struct rmq_pop_give *", {"pop_time_ms": popped_ms, "invisible_ms": invisible_ms})
        pop.start_offset, pop.next_offset = start, start + count
        assert lib.rmq_pop_window_give(windows.native, place, pop, list(range(start, start + count)), count) == 0

    def told() -> tuple[int, int, int]:
        return words[Gauge.DUE], words[Gauge.OLDEST_POP_MS], words[Gauge.OLDEST_DUE_MS]

    backlog.turn(0)
    assert told() == (0, 0, 0)
    assert backlog.sleep_ms(0) == INTERVAL_MS
    give(3, wall_ms - 9000, 60_000)
    give(2, wall_ms - 5000, 1000)
    give(4, wall_ms - 500, 100)  # its time is over, in the grace
    backlog.turn(INTERVAL_MS - 1)
    assert told() == (0, 0, 0), "it is not time to look"
    backlog.turn(INTERVAL_MS)
    assert told() == (2, wall_ms - 9000, wall_ms - 4000 + GRACE_MS)
    for number in range(STEP_ENTRIES):
        give(1, wall_ms + number, 60_000)
    give(1, wall_ms - 30_000, 100_000)
    backlog.turn(now_ms := 2 * INTERVAL_MS)
    assert told()[1] == wall_ms - 9000, "the look is not at its end"
    assert backlog.sleep_ms(now_ms) == STEP_MS
    backlog.turn(now_ms + STEP_MS)
    assert told()[1] == wall_ms - 30_000
    lib.rmq_pop_window_drop(windows.native, place)
    backlog.finish()
    assert told() == (0, 0, 0)
