"""Requests at services: whatever a service does with one, its client gets one answer, and others get theirs."""

from collections.abc import Callable
from typing import Any

import pytest

from ringmq.broker.requests.request import (
    Answer,
    Close,
    Drop,
    Effect,
    Hangup,
    Outbox,
    Release,
    Reply,
    Request,
    Slices,
    Wait,
)
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.services.service_requests import ServiceRequests
from tests.services.kit import CLIENT, request_of

CODE = 270001


class OneService:
    """Does with each request what the test says."""

    name = "test"
    codes = frozenset({CODE})
    has_news = is_polling = False
    is_idle = True

    def __init__(self, does: Callable[[Request], Answer | Slices]) -> None:
        self.on_request = does

    def turn(self, now_ms: int) -> bool:
        return False

    def save_if_due(self, now_ms: int) -> None: ...

    def close(self) -> None: ...


class Harness:
    def __init__(self, does: Callable[[Request], Answer | Slices], refusal: str | None = None) -> None:
        self.outbox, self.traces, self.answered = Outbox(), list[str](), list[Request]()
        self.requests = ServiceRequests(
            [OneService(does)],
            self.outbox,
            TurnClock(),
            lambda: 0,
            lambda code, connection: refusal,
            self.answered.append,
            self.traces.append,
        )

    def ask(self, code: int = CODE, flag: int = 0) -> list[Effect]:
        request = request_of(code)
        request.command.flag = flag
        self.requests.run(request)
        while self.requests.is_busy:
            self.requests.turn()
        return self.requests.take_effects()


def reply_of(effects: list[Effect]) -> Any:
    (effect,) = effects
    assert isinstance(effect, Reply) and (effect.connection, effect.pending) == (CLIENT, 3)
    return effect.command


def fails(request: Request) -> Answer:
    raise ZeroDivisionError("a defect")


def refuses(request: Request) -> Answer:
    raise RequestError("queryId has 129 characters, the limit is 128", field="queryId", code=29, limit=128)


def test_a_defect_costs_one_answer_and_leaves_its_trace() -> None:
    harness = Harness(fails)
    answer = reply_of(harness.ask())
    assert answer.code == ResponseCode.SYSTEM_ERROR and "ZeroDivisionError" in answer.remark
    (trace,) = harness.traces
    assert "Traceback" in trace and "fails" in trace
    assert reply_of(harness.ask()).code == ResponseCode.SYSTEM_ERROR


def test_bad_input_is_answered_by_field_without_a_trace() -> None:
    harness = Harness(refuses)
    answer = reply_of(harness.ask())
    assert (answer.code, answer.remark) == (29, "queryId has 129 characters, the limit is 128")
    assert harness.traces == [] and len(harness.answered) == 1


def in_steps(last: Callable[[Request], Answer]) -> Callable[[Request], Slices]:
    def steps(request: Request) -> Steps[Answer]:
        yield
        yield
        return last(request)

    return lambda request: Slices(steps(request))


@pytest.mark.parametrize(("last", "code"), [(fails, 1), (refuses, 29), (lambda request: request.reply(), 0)])
def test_steps_end_in_an_answer_too(last: Callable[[Request], Answer], code: int) -> None:
    assert reply_of(Harness(in_steps(last)).ask()).code == code


def test_a_code_that_no_guest_has_is_not_supported() -> None:
    assert reply_of(Harness(fails).ask(code=270002)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_a_peer_that_may_not_send_it_meets_no_guest() -> None:
    answer = reply_of(Harness(fails, refusal="not from here").ask())
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not from here")


@pytest.mark.parametrize("does", [lambda request: request.reply(), fails, refuses])
def test_a_oneway_request_gets_no_answer(does: Callable[[Request], Answer]) -> None:
    assert Harness(does).ask(flag=2) == [Release(CLIENT, 3)]


@pytest.mark.parametrize(
    ("answer", "effects"), [(Wait(), []), (Drop(), [Release(CLIENT, 3)]), (Close(), [Hangup(CLIENT, 3)])]
)
def test_other_answers(answer: Answer, effects: list[Effect]) -> None:
    assert Harness(lambda request: answer).ask() == effects


def test_a_late_answer_goes_out_with_the_next_effects() -> None:
    kept: list[Request] = []

    def keeps(request: Request) -> Answer:
        kept.append(request)
        return Wait()

    harness = Harness(keeps)
    assert harness.ask() == [] and harness.answered == kept
    harness.outbox.reply(kept[0], kept[0].reply(0))
    assert reply_of(harness.requests.take_effects()).code == 0


def test_a_response_of_a_client_is_dropped() -> None:
    assert Harness(fails).ask(flag=1) == [Release(CLIENT, 3)]
