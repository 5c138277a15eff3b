"""The desk serves plain requests in C while its worker waits, and gives Python a turn where that has to decide."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desk_stage import POP, ROLE, Stage, receipts

from ringmq.native import ffi, lib
from tests.waiting import wait_until

GUARD_MS = 60_000
"""A wait that returns by its time alone would take so long."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic with ten messages, whose windows are there."""
    made = Stage(tmp_path / "store")
    made.topic("T")
    made.group("G")
    made.send("T", 10)
    assert made.pop(maxMsgNums=1).code == 0
    yield made


def put_pop(stage: Stage, **more: object) -> int:
    """One pop into the inbox. Returns its token."""
    asked = {
        "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 60_000, "pollTime": 0,
        "bornTime": 0, "initMode": 0, "expType": "TAG", "exp": "*",
    }  # fmt: skip
    return stage.put(POP, asked, **more)  # type: ignore[arg-type]


def reason_of(stage: Stage, timeout_ms: int = GUARD_MS) -> int:
    """The reason for which a wait returns. The caller has armed the bell, as the loop does."""
    lib.rmq_role_arm(stage.kit.plane, ROLE)
    return stage.desk.native.serve_waiting(stage.desk.serving.struct, timeout_ms)


def reason_of_wait(stage: Stage, timeout_ms: int = GUARD_MS) -> int | None:
    """The result of a wait by the loop: None, or of the C loop that has left an ask."""
    lib.rmq_role_arm(stage.kit.plane, ROLE)
    stage.desk.wait(timeout_ms)
    return int(stage.desk.serving.struct.why) or None


def bell(stage: Stage) -> int:
    return int(stage.kit.header.roles[ROLE].bell.sleeping)


def test_requests_are_served_while_the_worker_waits(stage: Stage) -> None:
    tokens = [put_pop(stage) for _ in range(3)]
    assert reason_of(stage) == lib.RMQ_SERVING_DUE, "Python has a turn soon behind them"
    answers = [stage.verdict() for _ in tokens]
    assert [(one.code, one.verdict.pending) for one in answers if one] == [(0, token) for token in tokens]
    assert stage.desk.serving.asks == 3 and bell(stage) == 0
    assert not stage.desk.turn(stage.now_ms + 1) and stage.desk.has_worked, "the time of rest begins anew"
    assert not stage.desk.turn(stage.now_ms + 2) and not stage.desk.has_worked
    assert answers[0] is not None and stage.ack(receipts(answers[0])[0]).code == 0


def while_it_sleeps(stage: Stage, then: Callable[[], object]) -> int:
    """Do something behind the wait's last look. Returns the reason for its return."""

    def run() -> None:
        wait_until(lambda: bell(stage) == lib.RMQ_BELL_ASLEEP and stage.desk.serving.struct.sleeps, "it sleeps")
        then()

    thread = threading.Thread(target=run)
    stage.desk.serving.struct.sleeps = 0
    thread.start()
    try:
        return reason_of(stage)
    finally:
        thread.join()


def test_a_request_wakes_it(stage: Stage) -> None:
    assert while_it_sleeps(stage, lambda: put_pop(stage)) == lib.RMQ_SERVING_DUE
    answer = stage.verdict()
    assert answer is not None and answer.code == 0


def test_a_thread_of_the_worker_gives_python_a_turn(stage: Stage) -> None:
    def notify() -> None:
        stage.desk.serving.struct.news = 1
        lib.rmq_role_wake(stage.kit.plane, ROLE)

    assert while_it_sleeps(stage, notify) == lib.RMQ_SERVING_NEWS
    assert stage.desk.serving.struct.news == 0
    assert while_it_sleeps(stage, lambda: lib.rmq_role_wake(stage.kit.plane, ROLE)) == lib.RMQ_SERVING_NEWS


def test_a_new_configuration_is_read_before_the_next_request(stage: Stage) -> None:
    token = put_pop(stage)
    stage.kit.header.settings.config_version += 1
    assert reason_of(stage) == lib.RMQ_SERVING_NEWS
    assert stage.verdict() is None and stage.desk.serving.asks == 0
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.verdict.pending == token


def test_a_request_that_is_not_plain_is_left_to_python(stage: Stage) -> None:
    tokens = [put_pop(stage), put_pop(stage, odd=True), put_pop(stage)]
    assert reason_of(stage) == lib.RMQ_SERVING_LEFT
    assert stage.desk.serving.struct.why == lib.RMQ_POP_ODD and stage.desk.serving.asks == 1
    stage.turn()
    answers = [stage.verdict() for _ in tokens]
    assert [(one.code, one.verdict.pending) for one in answers if one] == [(0, token) for token in tokens]


def test_a_turn_leaves_plain_requests_to_the_next_wait(stage: Stage) -> None:
    """Under load some are always there, and Python would serve most of them."""
    assert reason_of_wait(stage, 1) is None
    tokens = [put_pop(stage) for _ in range(2)]
    assert not stage.desk.turn(stage.now_ms + 1) and stage.verdict() is None
    assert stage.desk.sleep_ms(stage.now_ms + 1) > 0, "they are no reason for a turn"
    assert reason_of_wait(stage) is None
    answers = [stage.verdict() for _ in tokens]
    assert [one.verdict.pending for one in answers if one] == tokens


def test_turns_without_a_wait_serve_requests(stage: Stage) -> None:
    """Another part may have work for many turns, and the loop does not sleep then."""
    assert reason_of_wait(stage, 1) is None
    token = put_pop(stage)
    assert not stage.desk.turn(stage.now_ms + 1) and stage.verdict() is None
    assert not stage.desk.turn(stage.now_ms + 2)
    answer = stage.verdict()
    assert answer is not None and (answer.code, answer.verdict.pending) == (0, token)


def test_a_stop_answers_what_waits(stage: Stage) -> None:
    assert reason_of_wait(stage, 1) is None
    token = put_pop(stage)
    stage.desk.close(rests=False)
    answer = stage.verdict()
    assert answer is not None and (answer.code, answer.verdict.pending) == (0, token)


def test_a_slow_request_is_told(stage: Stage) -> None:
    stage.set(slow_request_ms=500)
    put_pop(stage, received_ns=time.monotonic_ns() - 2_000_000_000)
    lib.rmq_role_arm(stage.kit.plane, ROLE)
    stage.desk.wait(GUARD_MS)
    assert stage.desk.serving.struct.why == lib.RMQ_POP_SLOW
    answer = stage.verdict()
    assert answer is not None and answer.code == 0
    stage.desk.turn(stage.now_ms + 10_000)
    assert any("200050" in line for line in stage.lines), stage.lines


def test_an_incomplete_record_is_waited_for_by_python(stage: Stage) -> None:
    put_pop(stage)
    record = lib.rmq_inbox_take(stage.kit.plane, stage.answerer)
    record.length = -record.length  # its writer is stopped
    stage.kit.header.roles[7].claim_position = stage.answerer << 56  # and alive
    assert stage.desk.serving.wait(0, GUARD_MS) is None
    assert stage.desk.serving.is_blocked
    sleeps = [stage.desk.sleep_ms(stage.now_ms) for _ in range(3)]
    assert sleeps[1:] == [1, 1], "no wait in C, which would return at once"
    record.length = -record.length
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.code == 0 and not stage.desk.serving.is_blocked


def test_a_record_for_python_ends_the_wait(stage: Stage) -> None:
    ring = ffi.new("struct rmq_ring *")
    serving = stage.desk.serving.struct
    serving.rings[0], serving.ring_count = ring, 1
    ring.head = 1
    put_pop(stage)
    assert reason_of(stage) == lib.RMQ_SERVING_NEWS and stage.desk.serving.asks == 0
