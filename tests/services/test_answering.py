"""The part that answers clients, over a real plane: asks in, answers out; its rest; and what a defect costs."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.asks import Asker, Inbox
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.errors import RequestError
from ringmq.services.answering import CLOSE_MS, TICK_MS, Answering
from ringmq.services.control_asks import ControlAsks
from ringmq.services.kit.log_lines import LINES_PER_MINUTE
from ringmq.services.kit.loop import ServiceLoop

CODE, READER, ROLE = 270001, lib.RMQ_ROLE_READ, lib.RMQ_ROLE_SERVICES
NOW, REST_MS = 1_700_000_000_000, 5000
SMALL = Capacity(
    topics=64, queues=64, groups=64, subscriptions=64, offsets=64, parked_slots=64, commit_slots=64, arrived_slots=64,
    answerers=(
        AnswererPlan(lib.RMQ_ROLE_CONTROL, frozenset({READER, ROLE}), 1 << 16, 1 << 16),
        AnswererPlan(ROLE, frozenset({READER}), 1 << 16, 1 << 16, (CODE,)),
    ),
)  # fmt: skip


@dataclass
class FakeService:
    """Answers by what the request says; the test sets what it reports."""

    name = "guest"
    codes = frozenset({CODE})
    outbox: Outbox = field(default_factory=Outbox)
    has_news: bool = False
    is_polling: bool = False
    is_idle: bool = True
    saves: list[int] = field(default_factory=list)
    save_error: Exception | None = None
    waiting: list[Request] = field(default_factory=list)

    def on_request(self, request: Request) -> Answer:
        match (request.command.ext_fields or {}).get("does"):
            case "wait":
                self.waiting.append(request)
                return Wait()
            case "fail":
                raise ZeroDivisionError("a defect")
            case "refuse":
                raise RequestError("x = 9 is over 8", field="x", code=29, limit=8)
        return request.reply(remark="done")

    def turn(self, now_ms: int) -> bool:
        return False

    def save_if_due(self, now_ms: int) -> None:
        self.saves.append(now_ms)
        if self.save_error is not None:
            raise self.save_error

    def close(self) -> None:
        for request in self.waiting:
            self.outbox.reply(request, request.reply(14, "shutting down"))


@dataclass
class Harness:
    plane: Plane
    service: FakeService
    loop: ServiceLoop
    answering: Answering
    lines: list[str]
    now_ms: Callable[[], int] = lambda: NOW
    generation: int = 1

    def ask(self, does: str, pending: int = 5, connection: int = 3, age_ms: int = 0) -> None:
        """As a read worker asks."""
        frame = encode_frame(RemotingCommand.request(CODE, {"does": does}, opaque=pending))
        head = ffi.new("struct rmq_inbox_record *")
        head.type, head.role, head.role_generation = lib.RMQ_INBOX_COLD_FRAME, READER, self.generation
        head.connection, head.connection_generation, head.pending = connection, 1, pending
        head.frame_length, head.received_mono_ns = len(frame), time.monotonic_ns() - age_ms * 1_000_000
        ffi.memmove(head.peer_host, bytes([127, 0, 0, 9]), 4)
        assert lib.rmq_inbox_put(self.plane.struct, 1, head, frame, len(frame), ffi.NULL) == 0

    def answers(self) -> list[tuple[int, int, str | None]]:
        """(pending, code, remark) of what the read worker gets."""
        found = []
        while (verdict := lib.rmq_verdict_take(self.plane.struct, 1, READER)) != ffi.NULL:
            size = ffi.sizeof("struct rmq_verdict")
            assert verdict.type == lib.RMQ_VERDICT_SEND and verdict.asker_generation == self.generation
            payload = bytes(ffi.buffer(ffi.cast("char *", verdict) + size, verdict.length - size))
            command = decode_frame(payload)
            found.append((int(verdict.pending), command.code, command.remark))
            lib.rmq_verdict_done(self.plane.struct, 1, READER, verdict)
        return found


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    name = f"test-{uuid.uuid4().hex[:12]}"
    plane = Plane.create(name, SMALL, tmp_path.stat(), 1)
    plane.role(READER).generation = plane.role(ROLE).generation = 1
    service, lines = FakeService(), list[str]()
    inbox = Inbox(plane, ROLE)
    inbox.begin()
    view = cast(Any, SimpleNamespace(refresh=lambda: None))
    topic_creator = ControlAsks(Asker(plane, ROLE, lib.RMQ_ROLE_CONTROL))
    config = BrokerConfig(slow_request_ms=500)
    made = list[Harness]()
    answering = Answering(
        plane, ROLE, inbox, [service], topic_creator, service.outbox, lambda: config, view, lines.append,
        now_ms=lambda: made[0].now_ms(),
    )  # fmt: skip
    loop = ServiceLoop(plane, ROLE, [answering], rest_after_ms=REST_MS)
    made.append(Harness(plane, service, loop, answering, lines))
    yield made[0]
    remove_segments(name)


def test_each_request_gets_its_answer_in_the_order_of_its_connection(harness: Harness) -> None:
    for pending, does in enumerate(("answer", "refuse", "fail", "answer")):
        harness.ask(does, pending)
    assert harness.loop.turn(NOW)
    found = harness.answers()
    assert [(pending, code) for pending, code, _ in found] == [(0, 0), (1, 29), (2, 1), (3, 0)]
    assert found[1][2] == "x = 9 is over 8" and "ZeroDivisionError" in (found[2][2] or "")
    assert [line for line in harness.lines if "Traceback" in line and "request 270001 failed" in line]
    assert not harness.loop.turn(NOW), "there is no more"


def test_the_same_defect_does_not_fill_the_log(harness: Harness) -> None:
    for pending in range(5 * LINES_PER_MINUTE):
        harness.ask("fail", pending)
        harness.loop.turn(NOW)
    assert len(harness.lines) == 1 and len(harness.answers()) == 5 * LINES_PER_MINUTE


def test_a_late_answer_goes_out_with_the_turn_that_makes_it(harness: Harness) -> None:
    harness.ask("wait")
    harness.loop.turn(NOW)
    assert harness.answers() == []
    harness.service.outbox.reply(harness.service.waiting[0], harness.service.waiting[0].reply(0, "later"))
    harness.loop.turn(NOW)
    assert harness.answers() == [(5, 0, "later")]


def test_what_a_dead_read_worker_has_asked_gets_no_answer(harness: Harness) -> None:
    harness.ask("wait")
    harness.loop.turn(NOW)
    harness.generation = 2
    harness.ask("answer", 6)
    harness.loop.turn(NOW)
    request = harness.service.waiting[0]
    harness.service.outbox.reply(request, request.reply(0, "for nobody"))
    harness.loop.turn(NOW)
    assert harness.answers() == [(6, 0, "done")]


def test_a_save_that_fails_is_told_once_and_tried_again(harness: Harness) -> None:
    harness.service.save_error = OSError("the disk is full")
    for turn in range(3):
        harness.loop.turn(NOW + turn * TICK_MS)
    assert harness.service.saves == [NOW, NOW + TICK_MS, NOW + 2 * TICK_MS]
    assert harness.lines == ["guest: the disk is full"]


def test_it_rests_only_when_nothing_has_been_to_do_for_a_while(harness: Harness) -> None:
    harness.ask("answer")
    harness.loop.turn(NOW)
    assert not harness.loop.may_rest(NOW + REST_MS - 1)
    harness.service.is_idle = False
    harness.loop.turn(NOW + REST_MS)
    assert not harness.loop.may_rest(NOW + REST_MS), "its service has work"
    harness.service.is_idle = True
    harness.plane.role(ROLE).activation_requested = 1
    assert harness.loop.may_rest(NOW + 2 * REST_MS)
    assert harness.plane.role(ROLE).activation_requested == 0, "an ask from now on sets it again"
    harness.ask("answer", 6)
    assert harness.plane.role(ROLE).activation_requested == 1
    assert not harness.loop.may_rest(NOW + 2 * REST_MS), "the last look finds what has come meanwhile"


def test_a_held_worker_does_not_rest(harness: Harness) -> None:
    harness.loop.turn(NOW)
    before_ms = time.monotonic_ns() // 1_000_000
    harness.plane.hold(ROLE, 60)
    after_ms = time.monotonic_ns() // 1_000_000
    assert harness.plane.role(ROLE).activation_requested == 1, "a dormant one starts"
    until_ms = harness.plane.role(ROLE).needed_until_s * 1000
    assert before_ms + 58_000 < until_ms <= after_ms + 60_000
    assert not harness.plane.is_held(ROLE, NOW), "that clock is another one"
    harness.plane.role(ROLE).needed_until_s = (NOW + 2 * REST_MS) // 1000
    assert not harness.loop.may_rest(NOW + REST_MS)
    assert not harness.loop.may_rest(NOW + 2 * REST_MS - 1)
    assert harness.loop.may_rest(NOW + 2 * REST_MS)


def test_a_stop_answers_what_is_in_the_inbox_and_what_waits(harness: Harness) -> None:
    harness.ask("wait", 1)
    harness.loop.turn(NOW)
    harness.ask("answer", 2, connection=4)
    harness.answering.close(rests=False)
    assert sorted(harness.answers()) == [(1, 14, "shutting down"), (2, 0, "done")]


def test_a_stop_waits_no_longer_for_work_that_goes_on(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that reads millions of half messages has work in each turn."""
    turns: list[int] = []

    def work(now_ms: int) -> bool:
        turns.append(now_ms)
        assert len(turns) < CLOSE_MS, "the stop has no end"
        return True

    monkeypatch.setattr(harness.service, "turn", work)
    harness.ask("wait")
    harness.now_ms = lambda: NOW + 100 * len(turns)
    harness.answering.close(rests=False)
    assert len(turns) == CLOSE_MS // 100
    assert harness.answers() == [(5, 14, "shutting down")]


def test_slow_requests_have_a_line_and_every_request_its_time(harness: Harness) -> None:
    harness.ask("answer", age_ms=800)
    harness.loop.turn(NOW)
    harness.loop.turn(NOW + TICK_MS)
    (line,) = harness.lines
    assert line.startswith("slow request: 8") and "STAGED_WRITES" in line and "127.0.0.9" in line
    counts = harness.plane.header.latency[ROLE][lib.RMQ_SERVICES_LATENCY_ANSWERED].counts
    assert sum(counts) == 1


def test_a_rest_leaves_a_late_ask_to_the_replacement(harness: Harness) -> None:
    harness.loop.turn(NOW)
    assert harness.loop.may_rest(NOW + REST_MS)
    harness.ask("answer")
    harness.answering.close(rests=True)
    assert harness.answers() == [] and harness.plane.role(ROLE).activation_requested == 1
    record = Inbox(harness.plane, ROLE).take()
    assert record is not None and record.pending == 5
