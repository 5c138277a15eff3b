"""Shares of members in the queues of a topic, rule by rule. `test_assignments.py` has the recorded answers of stock."""

import random

import pytest

from ringmq.broker.assignment.shares import Member, share_of
from ringmq.broker.assignment.topic_queues import ROUTE_BYTES_MAX, TopicQueues
from ringmq.remoting.assignment_bodies import POP, PULL, RequestMode
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.route import QueueData, TopicRouteData


def share(
    client: str,
    members: list[str],
    queues: TopicQueues,
    mode: str = PULL,
    others: int = -1,
    strategy: str = "AVG",
) -> list[MessageQueue] | None:
    ordered = sorted(members)
    place = ordered.index(client) if client in ordered else None
    found = share_of(Member(client, place, len(ordered)), queues, RequestMode("T", "G", mode, others), strategy)
    return None if found is None else list(found)


def ids(queues: list[MessageQueue] | None) -> list[int]:
    assert queues is not None
    return [queue.queue_id for queue in queues]


def test_an_unknown_strategy_has_no_result_and_a_stranger_has_no_queue() -> None:
    queues = TopicQueues("T", [("b", 4)])
    for mode in (PULL, POP):
        assert share("a", ["a"], queues, mode, strategy="NOPE") is None
        assert share("a", ["a"], queues, mode, strategy="") is None
    assert share("x", ["a", "b"], queues) == []
    assert share("x", ["a", "b", "c"], queues, POP, 1) == []
    assert share("x", ["a", "b", "c", "d", "e"], queues, POP, 1) == []
    assert ids(share("x", ["a", "b"], queues, POP, 0)) == [-1], "stock does not look for the client here"


def test_a_client_without_an_id_has_no_result() -> None:
    queues = TopicQueues("T", [("b", 2)])
    assert share("", ["a"], queues) is None
    assert share("", ["a", "b", "c"], queues, POP, 1) is None
    assert share(" ", ["a", "b", "c"], queues, POP, 1) is None, "more members than queues: a blank id counts as none"
    assert share(" ", ["a", "b"], queues) == []
    assert ids(share("", ["a"], queues, POP, 0)) == [-1]


def test_a_topic_without_readable_queues() -> None:
    queues = TopicQueues("T", [])
    assert share("a", ["a"], queues) is None, "the consumer keeps its queues"
    assert share("a", ["a", "b", "c"], queues, POP, 1) is None
    assert share("a", ["a"], queues, POP, 0) == [], "the consumer gives up its queues"


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE"])
def test_pop_shares_are_those_of_the_next_members(strategy: str) -> None:
    """Each case from the rule: the own share and those of the `others` members behind it, around the end."""
    dice = random.Random(11)
    for _ in range(300):
        members = sorted({f"c{dice.randrange(100)}" for _ in range(dice.randrange(1, 9))})
        queues = TopicQueues("T", [("b2", dice.randrange(0, 9)), ("b10", dice.randrange(1, 9))])
        others = dice.randrange(-1, 9)
        client = dice.choice(members)
        found = share(client, members, queues, POP, others, strategy)
        assert found is not None
        if others <= 0 or others >= len(members) - 1:
            assert found == [MessageQueue("T", name, -1) for name in queues.broker_names]
        elif len(members) > len(queues):
            assert found == [queues[members.index(client) % len(queues)]]
        else:
            at = members.index(client)
            near = [members[(at + step) % len(members)] for step in range(others + 1)]
            parts = [share(each, members, queues, PULL, strategy=strategy) or [] for each in near]
            assert found == sorted({queue for part in parts for queue in part}, key=list(queues).index)


def test_queues_are_ordered_by_broker_and_number_and_counted_once() -> None:
    queues = TopicQueues("T", [("b2", 2), ("b10", 11), ("b2", 1), ("none", 0), ("odd", -5)])
    wanted = [MessageQueue("T", "b10", n) for n in range(11)] + [MessageQueue("T", "b2", n) for n in range(2)]
    assert list(queues) == wanted == queues[:]
    assert queues.broker_names == ("b10", "b2")
    assert queues == TopicQueues("T", [("b10", 11), ("b2", 2)]) != TopicQueues("T", [("b10", 11)])
    with pytest.raises(IndexError):
        queues[13]


def route(*datas: QueueData) -> bytes:
    return TopicRouteData(list(datas)).encode(standard_json=True)


def test_a_route_counts_with_its_readable_queues() -> None:
    body = route(QueueData("b", 3, 9, 4), QueueData("w", 5, 5, 2), QueueData("a", 1, 0, 6))
    assert TopicQueues.decode("T", body) == TopicQueues("T", [("a", 1), ("b", 3)])
    assert not TopicQueues.decode("T", route(QueueData("w", 5, 5, 2)))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "does not parse"),
        (b"[]", "not an object"),
        (b'{"queueDatas":[7]}', "not an object"),
        (b'{"queueDatas":' + b" " * ROUTE_BYTES_MAX + b"[]}", "at most 1048576 are read"),
        (route(QueueData("b", 131_073, 1, 6)), "has 131073 queues, at most 131072 are kept"),
        (route(QueueData("b", 1 << 40, 1, 6)), "at most 131072 are kept"),
    ],
)
def test_a_route_beyond_the_limits_is_an_error(body: bytes, words: str) -> None:
    with pytest.raises(RemotingError, match=words):
        TopicQueues.decode("T", body)
