"""Every queue has exactly one owner, shares are contiguous and differ by one at most, as stock members compute them."""

import random

import pytest

from ringmq.client.consuming.allocation import (
    AllocationStrategy,
    allocate_averagely,
    allocate_by_circle,
    allocate_by_config,
    allocate_by_hash,
)
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


def test_by_circle_deals_queues_out_one_by_one() -> None:
    shares = [[q.queue_id for q in allocate_by_circle(c, queues(8), ["c", "a", "b"])] for c in "abc"]
    assert shares == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert allocate_by_circle("z", queues(4), ["a"]) == []


def test_by_config_takes_its_own_whoever_is_there() -> None:
    allocate = allocate_by_config(queues(8)[2:4])
    assert [q.queue_id for q in allocate("z", queues(8), ["a", "b"])] == [2, 3]


def test_by_hash_gives_each_queue_to_one_member_and_moves_few() -> None:
    everything = queues(64)
    before = {q: m for m in "abcd" for q in allocate_by_hash(m, everything, "abcd")}
    after = {q: m for m in "abc" for q in allocate_by_hash(m, everything, "abc")}
    assert set(before) == set(after) == set(everything)
    assert all(after[q] == m for q, m in before.items() if m != "d"), "only the queues of the one that left move"
    assert allocate_by_hash("z", everything, "abcd") == []


@pytest.mark.parametrize("allocate", [allocate_averagely, allocate_by_circle, allocate_by_hash])
def test_members_disagree_about_nothing(allocate: AllocationStrategy) -> None:
    shares = [
        allocate(m, queues(7), ["10.0.0.1@9#2", "10.0.0.1@10#1", "10.0.0.2@1#1"])
        for m in ("10.0.0.1@9#2", "10.0.0.1@10#1", "10.0.0.2@1#1")
    ]
    assert sorted(q for share in shares for q in share) == queues(7)
