"""The rows of POP run at small sizes, and count what they claim."""

import os
from collections.abc import Iterator

import pytest

from ringmq.loadtest.bench import open_pops, pops, waiting_pops
from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.pops import serves_pop
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.measuring.measurement import RATE

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.io_uring,
    pytest.mark.skipif(not serves_pop(), reason="brokers of this tree do not serve POP"),
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Context, RingmqTarget]]:
    cpus = sorted(os.sched_getaffinity(0))
    folder = tmp_path_factory.mktemp("pops")
    context = Context(build_tools(), folder, cpus, None, seconds=0.5, warmup_s=0.0)  # all may be popped within any
    running = RingmqTarget(context.folder / "ringmq", waiting_pops.SETTINGS, context.cpus)
    try:
        yield context, running
    finally:
        running.close()


@pytest.mark.parametrize("options", [{"count": 32}, {"count": 32, "single_acks": True}, {"count": 1}])
def test_pops_and_their_acknowledgements(target: tuple[Context, RingmqTarget], options: dict[str, object]) -> None:
    measured = pops.pop_row("smoke", connections=2, depth=2, **options)(*target)
    assert measured.ok, measured.note
    assert measured.values[RATE] > 0 and measured.values["cpu_us"] > 0
    assert measured.raw["acked"] == measured.raw["popped"] > 0


def test_messages_that_come_back(target: tuple[Context, RingmqTarget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pops, "REVIVED_INVISIBLE_MS", 1000)
    measured = pops.revival_row(640, 0.02)(*target)
    assert measured.ok, measured.note
    assert measured.values["max_ms"] >= measured.values["p99_ms"] >= measured.values["p50_ms"] >= 0
    assert measured.values[RATE] > 0


def test_bytes_of_log_of_slow_handlers(target: tuple[Context, RingmqTarget]) -> None:
    measured = open_pops.log_bytes_row(640, 1.0)(*target)
    assert measured.ok, measured.note
    assert 0 <= measured.values["log_bytes"] < 10, "no record a message"


def test_acknowledgements_behind_a_restart(
    target: tuple[Context, RingmqTarget], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(open_pops, "OPEN_IN_LOG", 3200)
    measured = open_pops.logged_acks_row(target[0], RingmqTarget.name)
    assert measured.ok, measured.note
    assert measured.note.count("3200 open, 3200 acknowledged, 0 refused") == 2
    assert measured.values["to_plain"] == measured.values[RATE] / measured.values["plain_per_s"] > 0


def test_pops_and_pulls_that_wait(target: tuple[Context, RingmqTarget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_pops, "STEADY", {**waiting_pops.STEADY, "rate": 500})
    measured = waiting_pops.late_row(*target)
    assert measured.ok, measured.note
    assert measured.values["p99_ms"] >= measured.values["p50_ms"] > 0 and measured.values["cpu_us"] > 0
    assert measured.values["to_pulls"] == measured.values["p99_ms"] / measured.values["pull_p99_ms"] > 0


@pytest.mark.parametrize("waiting", [{"connections": 4, "depth": 20}, {"connections": 9, "depth": 3, "groups": 9}])
def test_a_message_to_many_pops(target: tuple[Context, RingmqTarget], waiting: dict[str, object]) -> None:
    measured = waiting_pops.wake_row("smoke", waiting)(*target)
    assert measured.ok, measured.note
    assert measured.values["max_ms"] >= measured.values["p50_ms"] > 0
    assert measured.raw["whole_us"]["count"] >= 4


def test_pops_beside_others_that_wait(target: tuple[Context, RingmqTarget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_pops, "OTHERS", {"topics": 10, "connections": 10, "depth": 10})
    measured = waiting_pops.beside_row(*target)
    assert measured.ok, measured.note
    assert {f"{kind}_ratio" for kind in waiting_pops.KINDS} <= set(measured.values)
    assert min(measured.values.values()) > 0
