"""The rows of timer messages run at small sizes, and count what they claim."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from ringmq.loadtest.bench import timers
from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.measuring.measurement import RATE

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Context, RingmqTarget]]:
    cpus = sorted(os.sched_getaffinity(0))
    made = Context(build_tools(), tmp_path_factory.mktemp("timers"), cpus, None, seconds=0.3, warmup_s=0.1)
    context = replace(made, timer_messages=3000, settle_ms=60_000)
    running = RingmqTarget(context.folder / "ringmq", {}, context.cpus)
    try:
        yield context, running
    finally:
        running.close()


@pytest.mark.io_uring
def test_sends(target: tuple[Context, RingmqTarget]) -> None:
    """So many messages as soon as the machine can: within a span of time a busy one may store none."""
    context = replace(target[0], seconds=0.0, warmup_s=0.0, messages_max=3000)
    measured = timers.accepted(context, target[1])
    assert measured.ok, (measured.note, measured.raw)
    assert measured.raw["acked"] == 3000
    assert measured.values[RATE] > 0 and measured.values["to_plain"] > 0


@pytest.mark.io_uring
def test_a_full_slot(target: tuple[Context, RingmqTarget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "LEAD_S", {"ringmq": 5.0})  # all is sent a second before its time
    monkeypatch.setattr(timers, "SLOTS_LEAD_S", 2.0)
    monkeypatch.setattr(timers, "SLOTS", 2)
    measured = timers.full_slot(*target)
    assert measured.ok, measured.note
    assert measured.values[RATE] > 0 and measured.values["first_max_ms"] >= measured.values["first_ms"] >= 0


def test_a_broker_that_refuses_timers_is_named(target: tuple[Context, RingmqTarget]) -> None:
    context, _ = target
    with closing(RingmqTarget(context.folder / "without", {"timerWheelEnable": False}, context.cpus)) as without:
        for run in (timers.accepted, timers.one_slot):
            measured = run(context, without)
            assert not measured.ok and "timerWheelEnable is false" in measured.note


@pytest.mark.io_uring
def test_lateness(target: tuple[Context, RingmqTarget]) -> None:
    measured = timers.lateness(*target)
    assert measured.ok, measured.note
    assert measured.values["early"] == 0
    assert measured.values["p99_9_ms"] >= measured.values["p50_ms"] >= 0


@pytest.mark.io_uring
def test_plain_sends_beside_a_delivery(target: tuple[Context, RingmqTarget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "LEAD_S", {"ringmq": 4.0})
    monkeypatch.setattr(timers, "ROUNDS", 1)
    measured = timers.beside_delivery(*target)
    assert measured.values["send_ratio"] > 0 and measured.values["p99_ratio"] > 0
    assert measured.ok or "were delivered when the sends ended" in measured.note
