"""Brokers that answer late are left alone, by stock's table."""

import pytest

from ringmq.client.connections.routes import QueueChooser, TopicRoute
from ringmq.client.errors import BrokerError, ConnectError, RingmqError
from ringmq.client.producing.broker_faults import FAILURE_LATENCY_MS, BrokerFaults
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message_queue import MessageQueue


@pytest.mark.parametrize(
    ("latency_ms", "alone_s"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (549, 0),
        (550, 2),
        (1799, 2),
        (1800, 5),
        (3000, 6),
        (5000, 10),
        (14_999, 10),
        (15_000, 30),
    ],
)
def test_the_later_the_longer(latency_ms: float, alone_s: float) -> None:
    faults = BrokerFaults()
    faults.note("a", latency_ms, 100.0)
    assert faults.avoided(100.0) == ({"a"} if alone_s else set())
    assert faults.avoided(100.0 + alone_s + 0.001) == set()
    if alone_s:
        assert faults.avoided(100.0 + alone_s - 0.001) == {"a"}


@pytest.mark.parametrize(
    ("error", "is_avoided"),
    [
        (None, False),
        (BrokerError("a:1", ResponseCode.MESSAGE_ILLEGAL, "no"), False),
        (BrokerError("a:1", ResponseCode.SYSTEM_BUSY, "later"), True),
        (ConnectError("a:1", "refused"), True),
    ],
)
def test_what_tells_of_a_broker_that_should_be_left_alone(error: RingmqError | None, is_avoided: bool) -> None:
    faults = BrokerFaults()
    faults.note_attempt("a", 1.0, 1.01, error)
    assert faults.avoided(1.01) == ({"a"} if is_avoided else set())


def test_a_quick_answer_makes_good() -> None:
    faults = BrokerFaults()
    faults.note("a", FAILURE_LATENCY_MS, 0.0)
    faults.note("a", 10, 1.0)
    assert faults.avoided(1.0) == set()


def test_the_choice_is_free_again_when_all_are_slow() -> None:
    route = TopicRoute("T", tuple(MessageQueue("T", name, number) for name in "abc" for number in range(2)), ())
    chooser = QueueChooser(0)

    def chosen(avoid: str | None, slow: set[str]) -> set[str]:
        found = [chooser.choose(route, avoid, slow) for _ in range(12)]
        return {queue.broker_name for queue in found if queue is not None}

    assert chosen(None, set()) == {"a", "b", "c"}
    assert chosen(None, {"a"}) == {"b", "c"}
    assert chosen("b", {"a"}) == {"c"}
    assert chosen("b", {"a", "c"}) == {"a", "c"}
    assert chosen("b", {"a", "b", "c"}) == {"a", "c"}
