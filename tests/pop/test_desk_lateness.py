"""A pop is late if its client waits no longer. The broker's own delays count for no request."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import POP, READER, Stage

from ringmq.native import ffi, lib
from ringmq.pop.desk_twin import is_too_late


class Clock:
    """The clocks of the desk. Stands still, unless the test moves it.

    The monotonic one begins ahead of the machine's, by which the stage opened its memory: it may not go back.
    """

    def __init__(self) -> None:
        self.wall_ms, self.mono_ms = 1_800_000_000_000, 1_000_000_000_000
        self.past_ns = 0
        """Of the monotonic clock, since its last whole millisecond."""

    def time_ns(self) -> int:
        return self.wall_ms * 1_000_000

    def monotonic_ns(self) -> int:
        return self.mono_ms * 1_000_000 + self.past_ns

    def pass_ms(self, passed_ms: int) -> None:
        self.wall_ms += passed_ms
        self.mono_ms += passed_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("ringmq.pop.native_desk.time", made)
    return made


@pytest.fixture
def stage(tmp_path: Path, clock: Clock) -> Iterator[Stage]:
    made = Stage(tmp_path / "store", auto_create_subscription_group=True)
    made.topic("T")
    made.group("G")
    made.send("T", 10)
    yield made


def put_pop(stage: Stage, clock: Clock, **fields: object) -> None:
    """A pop that is asked and received now."""
    asked = {
        "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 60_000, "pollTime": 0,
        "bornTime": clock.wall_ms, "initMode": 0, "expType": "TAG", "exp": "*",
    }  # fmt: skip
    stage.put(POP, asked | fields, received_ns=clock.monotonic_ns())


def code(stage: Stage) -> int:
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    return answer.code


@pytest.mark.parametrize(("start_ms", "wanted"), [(501, 0), (3400, 0), (3600, 210)])
def test_the_start_of_the_worker_makes_no_request_late(stage: Stage, clock: Clock, start_ms: int, wanted: int) -> None:
    """It starts with the first request. Beyond 3.5 s the client has given the request up."""
    put_pop(stage, clock)
    clock.pass_ms(start_ms)
    assert code(stage) == wanted


def test_a_request_in_the_queue_of_a_running_worker_becomes_late(stage: Stage, clock: Clock) -> None:
    assert stage.pop(bornTime=0, maxMsgNums=1).code == 0
    clock.pass_ms(1)
    put_pop(stage, clock)
    clock.pass_ms(501)
    assert code(stage) == 210


@pytest.mark.parametrize(("made_ms", "wanted"), [(501, 0), (3600, 210)])
def test_a_request_is_not_late_for_a_group_that_control_makes(
    stage: Stage, clock: Clock, made_ms: int, wanted: int
) -> None:
    assert stage.pop(bornTime=0, maxMsgNums=1).code == 0
    clock.pass_ms(1)
    put_pop(stage, clock, consumerGroup="NEW")
    stage.turn()
    ((group, then),) = stage.control.asked
    clock.pass_ms(made_ms)
    stage.group(group)
    then(None)
    assert code(stage) == wanted


def test_a_request_that_has_waited_is_not_late_for_room(stage: Stage, clock: Clock) -> None:
    """Its read worker reads no answers for a moment, when control has made the group."""
    assert stage.pop(bornTime=0, maxMsgNums=1).code == 0
    clock.pass_ms(1)
    put_pop(stage, clock, consumerGroup="NEW")
    stage.turn()
    ((group, then),) = stage.control.asked
    head = ffi.new("struct rmq_verdict *", {"type": lib.RMQ_VERDICT_SEND, "last": 1})
    while lib.rmq_verdict_add(stage.kit.plane, stage.answerer, READER, head, bytes(16_000), 16_000) == 0:
        pass
    clock.pass_ms(600)
    stage.group(group)
    then(None)
    stage.turn()
    ring = stage.kit.header.asks.answerer[stage.answerer].answers[READER]
    ring.tail = ring.head  # the read worker goes on
    assert code(stage) == 0


def test_c_and_its_twin_agree_about_lateness(stage: Stage) -> None:
    rng, desk = random.Random(5), stage.desk.native.struct
    desk.settings, desk.row.ask.role = 0, READER  # the next check refuses every request
    seen = set()
    for _ in range(2000):
        desk.now_ms, desk.now_ns = 10_000_000, 10**13
        delay_ms = rng.choice((0, 1, 499, 2999, 3000, 3001, 9000))
        received_ns = desk.now_ns - delay_ms * 1_000_000
        desk.row.ask.received_mono_ns, desk.began_ns = received_ns, received_ns + rng.choice((-(10**9), 0, 1, 10**9))
        desk.row.has_waited = has_waited = rng.random() < 0.5
        age_ms = rng.choice((rng.randrange(4000), 500, 501, 3500, 3501))
        born_ms = rng.choice((0, desk.now_ms - age_ms, desk.now_ms - age_ms))
        poll_ms = rng.choice((0, 0, 100, -1, 2**63 - 1))
        desk.row.pop.born_ms, desk.row.pop.poll_ms = born_ms, poll_ms
        left_ms = rng.choice((None, None, None, 9000, 0, -1, -500, -501))
        desk.row.until_ns = 0 if left_ms is None else desk.now_ns + left_ms * 1_000_000
        desk.row.held = is_held = rng.random() < 0.2
        is_late = is_too_late(
            born_ms, poll_ms, desk.now_ms, delay_ms=delay_ms, has_waited=has_waited,
            is_before_start=received_ns < desk.began_ns, is_held=is_held, left_ms=left_ms,
        )  # fmt: skip
        assert lib.rmq_pop_serve(desk, POP) == (lib.RMQ_POP_TOO_LATE if is_late else lib.RMQ_POP_BROKER_UNREADABLE)
        seen.add(is_late)
    assert seen == {True, False}


@pytest.mark.parametrize("past_ns", [0, 1, 999_999])
def test_no_message_comes_before_its_time(stage: Stage, clock: Clock, past_ns: int) -> None:
    """A pop at any moment of a millisecond, and an entry by the clock in whole ones."""
    clock.mono_ms, clock.past_ns = time.monotonic_ns() // 1_000_000 + 1000, past_ns  # entries are due within 49 days
    put_pop(stage, clock, invisibleTime=1000)
    assert code(stage) == 0
    end_ms, due = clock.mono_ms + 1000, ffi.new("struct rmq_pop_due[]", lib.RMQ_POP_ENTRY_MESSAGES)
    assert lib.rmq_pop_due(stage.windows, end_ms, due, len(due)) == (past_ns == 0)
    assert lib.rmq_pop_due(stage.windows, end_ms + 1, due, len(due)) == (past_ns > 0)
