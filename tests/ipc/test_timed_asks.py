"""Asks that end: answered once, or given up for a reason."""

from typing import Any

import pytest

from ringmq.ipc.asks import AskAnswer
from ringmq.ipc.timed_asks import WAITING_MAX, GivenUp, TimedAsks

MS = 1_000_000
KIND = 9


class ScriptedAsker:
    """Takes asks; the test says how they end."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bytes, int]] = []
        self.told: list[AskAnswer] = []
        self.told_late: list[AskAnswer] = []
        """Answers that come between the look at the answerer and that at its ring."""
        self.lost: set[int] = set()
        self.is_full = False

    @property
    def has_answers(self) -> bool:
        return bool(self.told)

    def put(self, kind: int, pending: int, payload: bytes, received_ns: int) -> int | None:
        if self.is_full:
            return None
        assert kind == KIND
        self.asked.append((pending, payload, received_ns))
        return len(self.asked) * 64

    def is_lost(self, position: int, received_ns: int, now_ns: int) -> bool:
        assert received_ns <= now_ns
        self.told, self.told_late = self.told + self.told_late, []
        return position // 64 in self.lost

    def answers(self) -> list[AskAnswer]:
        found, self.told = self.told, []
        return found


@pytest.fixture
def asker() -> ScriptedAsker:
    return ScriptedAsker()


@pytest.fixture
def asks(asker: ScriptedAsker) -> TimedAsks:
    return TimedAsks(asker, timeout_ms=100)


def asked(asks: TimedAsks, payload: bytes = b"?", now_ns: int = 0) -> list[Any]:
    """The outcomes of an ask."""
    outcomes: list[Any] = []
    asks.ask(KIND, payload, now_ns, outcomes.append)
    return outcomes


def test_each_ask_has_its_own_answer(asker: ScriptedAsker, asks: TimedAsks) -> None:
    one, two = asked(asks, b"one"), asked(asks, b"two")
    (first, *_), (second, *_) = asker.asked
    assert asks.is_waiting and not asks.has_news and not asks.turn(1)
    asker.told = [AskAnswer(second, b"2")]
    assert asks.has_news and asks.turn(2) and (one, two) == ([], [b"2"])
    asker.told = [AskAnswer(first, b""), AskAnswer(first, b"again")]
    assert asks.turn(3) and (one, two) == ([b""], [b"2"])
    assert not asks.is_waiting


def test_an_ask_that_its_answerer_does_not_answer(asker: ScriptedAsker, asks: TimedAsks) -> None:
    """What it says later is for nobody."""
    early, late = asked(asks, now_ns=0), asked(asks, now_ns=60 * MS)
    assert not asks.turn(100 * MS - 1)
    assert asks.turn(100 * MS) and (early, late) == ([GivenUp.LATE], [])
    asker.told = [AskAnswer(asker.asked[0][0], b"late"), AskAnswer(77, b"nobody's")]
    assert not asks.turn(101 * MS) and early == [GivenUp.LATE]
    assert asks.turn(160 * MS) and late == [GivenUp.LATE] and not asks.is_waiting


def test_an_ask_in_the_hand_of_an_answerer_that_died(asker: ScriptedAsker, asks: TimedAsks) -> None:
    """The other one is its replacement's. An answer of the dead counts if it is there."""
    gone, stays, answered = asked(asks), asked(asks), asked(asks)
    asker.lost = {1, 3}
    asker.told_late = [AskAnswer(asker.asked[2][0], b"done")]
    assert asks.turn(1)
    assert (gone, stays, answered) == ([GivenUp.LOST], [], [b"done"])


def test_a_full_inbox_gives_up_at_once(asker: ScriptedAsker, asks: TimedAsks) -> None:
    asker.is_full = True
    assert asked(asks) == [GivenUp.FULL] and not asks.is_waiting
    asker.is_full = False
    outcomes = [asked(asks) for _ in range(WAITING_MAX + 1)]
    assert outcomes[-1] == [GivenUp.FULL] and not any(outcomes[:-1])
    asks.give_up()
    assert outcomes[:-1] == [[GivenUp.LATE]] * WAITING_MAX and not asks.is_waiting


def test_who_asks_again_in_an_answer(asker: ScriptedAsker, asks: TimedAsks) -> None:
    outcomes: list[Any] = []
    asks.ask(KIND, b"?", 0, lambda _: asks.ask(KIND, b"again", 5, outcomes.append))
    asker.told = [AskAnswer(asker.asked[0][0], b"yes")]
    assert asks.turn(5) and outcomes == [] and asker.asked[1][1:] == (b"again", 5)
    assert asks.turn(100 * MS + 5) and outcomes == [GivenUp.LATE]
