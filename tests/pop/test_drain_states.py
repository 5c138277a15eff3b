"""States of a drain: requests of the operator, the steps of the way back, the time without requests."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.pop import drain
from ringmq.pop.check_points import HandOverError
from ringmq.pop.drain import LEASE_MS, WAIT_MS, PopDrain
from ringmq.pop.record_log import Steps
from ringmq.pop.revival_words import Gauge
from ringmq.remoting import pop_bodies
from ringmq.remoting.errors import RequestError
from ringmq.remoting.pop_bodies import CLOSING, DRAIN, DRAIN_NOW, DRAINED, LOOK, RESUME, SERVING, WAITING


class Operator:
    """A drain, its operator, its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words, self.lines, self.calls = [0] * 64, list[str](), list[str]()
        self.open, self.returned, self.now_ms = 3, 1, 1000
        self.steps: list[str | Exception] = []
        counts = SimpleNamespace(rmq_pop_counts_of=lambda windows: self)
        monkeypatch.setattr(drain, "lib", counts)
        self.start()

    def start(self) -> None:
        """A process of the worker begins."""
        self.drain = PopDrain(
            None, self.words, self._way_back, lambda: self.calls.append("resume"), self.lines.append,
            lambda: self.now_ms,
        )  # fmt: skip

    def _way_back(self) -> Steps:
        self.calls.append("way back")
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            yield step

    def ask(self, choice: str) -> pop_bodies.PopDrain:
        request: Any = SimpleNamespace(
            command=SimpleNamespace(ext_fields={"choice": choice}), reply=lambda *, body: body
        )
        body: Any = self.drain.on_request(request)
        return pop_bodies.PopDrain.decode(body)

    def state(self) -> str:
        return self.ask(LOOK).state


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    return Operator(monkeypatch)


def test_messages_are_given_before_and_none_behind_the_request(operator: Operator) -> None:
    assert operator.state() == SERVING and not operator.drain.gives_none and operator.drain.is_idle
    assert operator.ask(DRAIN) == pop_bodies.PopDrain(WAITING, 2)
    assert operator.drain.gives_none and not operator.drain.needs_port and not operator.drain.is_idle


def test_the_way_back_begins_when_nothing_is_open(operator: Operator) -> None:
    operator.ask(DRAIN)
    operator.open = operator.returned = 1  # no consumer has it: only a pop could end it
    assert operator.ask(DRAIN).state == CLOSING and operator.drain.needs_port and not operator.calls
    operator.steps = ["offsets", "", "records"]
    assert not operator.drain.run() and operator.ask(DRAIN).progress == "offsets" and operator.drain.has_begun
    assert not operator.drain.run() and operator.ask(DRAIN).progress == "records"
    assert not operator.drain.is_drained and not operator.words[Gauge.DRAINED]
    assert operator.drain.run() and operator.ask(DRAIN) == pop_bodies.PopDrain(DRAINED, 0)
    assert operator.drain.is_drained and operator.drain.is_idle and operator.words[Gauge.DRAINED] == 1
    assert operator.calls == ["way back"]


def test_an_operator_need_not_wait(operator: Operator) -> None:
    assert operator.ask(DRAIN_NOW).state == CLOSING
    assert operator.drain.run() and operator.ask(LOOK) == pop_bodies.PopDrain(DRAINED, 2)


def test_a_turn_of_records_ends(operator: Operator) -> None:
    """Requests of consumers come between."""
    operator.ask(DRAIN_NOW)
    operator.steps = [""] * 9
    advance = iter(range(0, 1000, drain.TURN_MS - 1))
    operator.drain._clock_ms = lambda: next(advance)
    assert operator.drain.run() and operator.drain.has_begun


@pytest.mark.parametrize("error", [HandOverError("write refuses a record"), OSError("the disk is gone")])
def test_a_failure_is_told_and_the_operator_decides(operator: Operator, error: Exception) -> None:
    operator.ask(DRAIN_NOW)
    operator.steps = [error]
    assert operator.drain.run()
    assert operator.ask(DRAIN_NOW) == pop_bodies.PopDrain(WAITING, 2, failure=str(error))
    assert operator.ask(RESUME).state == SERVING and operator.calls == ["way back", "resume"]
    operator.steps = []
    assert operator.ask(DRAIN_NOW) == pop_bodies.PopDrain(CLOSING, 2), "another try"


def test_a_way_back_that_waits_in_vain_is_given_up(operator: Operator) -> None:
    """Else acknowledgements with check points would wait as long as the disk is full, or control is away."""
    operator.ask(DRAIN_NOW)
    operator.steps = ["1 record", "2 records", *["2 records"] * 9]
    for _ in range(2):
        assert not operator.drain.run() and operator.drain.has_begun
        operator.now_ms += WAIT_MS - 1
    assert not operator.drain.run(), "the number of records has changed"
    operator.now_ms += 1
    assert operator.drain.run() and not operator.drain.has_begun and not operator.drain.needs_port
    failure = "2 records, and nothing has changed for 10 s"
    assert operator.ask(LOOK) == pop_bodies.PopDrain(WAITING, 2, failure=failure)
    assert operator.ask(DRAIN_NOW).state == WAITING, "the operator sees why"


def test_steps_without_a_wait_take_their_time(operator: Operator) -> None:
    operator.ask(DRAIN_NOW)
    operator.steps = [""] * 9
    advance = iter(range(0, 10 * WAIT_MS, WAIT_MS - 1))
    operator.drain._clock_ms = lambda: next(advance)
    assert operator.drain.run() and operator.drain.run() and operator.drain.has_begun


def test_a_broker_that_its_operator_leaves_alone_gives_messages_again(operator: Operator) -> None:
    operator.ask(DRAIN)
    operator.now_ms += LEASE_MS - 1
    operator.drain.turn(0)
    assert operator.ask(DRAIN).state == WAITING
    operator.now_ms += LEASE_MS - 1
    operator.drain.turn(0)
    assert operator.state() == WAITING, "the last request counts"
    operator.now_ms += 1
    operator.drain.turn(0)
    assert operator.state() == SERVING and operator.calls == ["resume"]


def test_a_drained_broker_stays_drained_until_it_is_taken_back(operator: Operator) -> None:
    operator.ask(DRAIN_NOW)
    operator.drain.run()
    operator.now_ms += 10 * LEASE_MS
    operator.drain.turn(0)
    operator.start()
    assert operator.state() == DRAINED and operator.drain.gives_none
    assert operator.ask(RESUME).state == SERVING and not operator.words[Gauge.DRAINED]
    operator.start()
    assert operator.state() == SERVING


def test_records_on_their_way_are_not_taken_back(operator: Operator) -> None:
    operator.ask(DRAIN_NOW)
    assert operator.ask(RESUME).state == CLOSING and not operator.calls


def test_an_unknown_choice_is_refused(operator: Operator) -> None:
    with pytest.raises(RequestError, match="choice = 'stop' is none of drain, drain-now, resume, look") as refused:
        operator.ask("stop")
    assert refused.value.field == "choice" and refused.value.code == 29
