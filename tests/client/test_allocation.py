"""Every queue has exactly one owner, shares are contiguous and differ by one at most, as stock members compute them."""

import random

from ringmq.client.allocation import allocate_averagely
from ringmq.remoting.message_queue import MessageQueue


def queues(count: int, topic: str = "T", broker_name: str = "b") -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, i) for i in range(count)]


def test_first_members_take_one_more() -> None:
    shares = [[q.queue_id for q in allocate_averagely(c, queues(8), ["c", "a", "b"])] for c in "abc"]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_more_members_than_queues() -> None:
    shares = [len(allocate_averagely(c, queues(2), "abcd")) for c in "abcd"]
    assert shares == [1, 1, 0, 0]


def test_a_list_without_me_gives_me_nothing() -> None:
    assert allocate_averagely("z", queues(4), ["a", "b"]) == []


def test_queue_ids_sort_as_numbers_and_brokers_before_them() -> None:
    both = queues(12, broker_name="b2") + queues(12, broker_name="b10")
    random.Random(1).shuffle(both)
    assert allocate_averagely("a", both, ["a"]) == queues(12, broker_name="b10") + queues(12, broker_name="b2")


def test_every_queue_has_one_owner() -> None:
    dice = random.Random(7)
    for _ in range(300):
        members = [str(dice.random()) for _ in range(dice.randrange(1, 9))]
        everything = queues(dice.randrange(0, 30))
        owned = [q for member in sorted(members) for q in allocate_averagely(member, everything, members)]
        assert owned == everything
