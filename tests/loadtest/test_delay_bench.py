"""The rows of delay levels run at small sizes, and count what they claim."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ringmq.loadtest.bench import delays
from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.measuring.measurement import RATE

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    cpus, folder = sorted(os.sched_getaffinity(0)), tmp_path_factory.mktemp("delays")
    made = Context(build_tools(), folder, cpus, None, seconds=0.3, warmup_s=0.1, settle_ms=60_000)
    return replace(made, delayed_messages=2000, waiting_messages=3000, open_halves=500)


@pytest.fixture(scope="module")
def target(context: Context) -> Iterator[RingmqTarget]:
    running = RingmqTarget(context.folder / "ringmq", delays.LEVELS, context.cpus)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.io_uring
def test_delayed_sends(context: Context, target: RingmqTarget) -> None:
    measured = delays.delayed_sends(context, target)
    assert measured.ok, measured.note
    assert measured.values[RATE] > 0 and measured.values["to_plain"] > 0
    late = delays.delayed_sends(replace(context, settle_ms=0), target)
    assert late.ok or "are in the queue in time" in late.note


@pytest.mark.io_uring
def test_lateness(context: Context, target: RingmqTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "LATENESS_S", 0.2)
    measured = delays.lateness(context, target)
    assert measured.ok, measured.note
    assert measured.values["early"] == 0
    assert measured.values["p99_ms"] >= measured.values["p50_ms"] >= 0


@pytest.mark.io_uring
def test_delivery_at_once(context: Context) -> None:
    measured = delays.due_at_once(context, "ringmq")
    assert measured.ok, measured.note
    assert measured.values[RATE] > 0


@pytest.mark.io_uring
def test_a_broker_that_refuses_delays_is_named(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "LEVELS", {"maxMessageSize": 100})  # bytes
    measured = delays.due_at_once(context, "ringmq")
    assert not measured.ok and "answers by code" in measured.note


@pytest.mark.io_uring
def test_plain_traffic_beside_waiting_messages(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "ROUNDS", 1)
    monkeypatch.setattr(delays, "PULLED", 10_000)
    measured = delays.beside_waiting(context, "ringmq")
    assert measured.ok, measured.note
    assert measured.values["send_ratio"] > 0 and measured.values["pull_ratio"] > 0
