"""Items of many connections: each waits for a known number of others, whatever one client adds."""

import random

import pytest

from ringmq.broker.requests.request import Connection
from ringmq.services.fair_queue import FairQueue
from tests.services.kit import client


def taken(queue: FairQueue[str]) -> list[str]:
    found = []
    while (item := queue.take()) is not None:
        found.append(item)
    return found


def test_hosts_take_turns_and_then_their_connections() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.add(client(1, "10.0.0.1"), f"a{number}")
        queue.add(client(2, "10.0.0.1"), f"b{number}")
    queue.add(client(1, "10.0.0.2"), "c0")
    queue.add(client(1, "10.0.0.2"), "c1")
    assert taken(queue) == ["a0", "c0", "b0", "c1", "a1", "b1", "a2", "b2"]
    assert len(queue) == 0 and queue.take() is None


def test_ipv6_addresses_of_one_network_are_one_host() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.add(client(number, f"2001:db8::{number}"), f"a{number}")
    queue.add(client(9, "2001:db8:0:1::1"), "b")
    assert queue.of_host(client(0, "2001:db8::ffff")) == 4
    assert taken(queue)[1] == "b"


@pytest.mark.parametrize("seed", range(10))
def test_an_item_waits_for_one_item_of_each_other_host_at_most(seed: int) -> None:
    """However many items other hosts add, before and behind it."""
    chance, queue = random.Random(seed), FairQueue[tuple[str, int]]()
    others = [client(number, f"10.0.{number % 5}.1") for number in range(50)]
    for number in range(1000):
        queue.add(chance.choice(others), ("other", number))
    honest = client(1, "10.9.0.1")
    queue.add(honest, ("honest", 0))
    waited = 0
    while queue.take() != ("honest", 0):
        queue.add(chance.choice(others), ("other", -1))
        waited += 1
    assert waited <= 5


@pytest.mark.parametrize("seed", range(10))
def test_a_connection_keeps_its_order_and_counts_are_exact(seed: int) -> None:
    chance, queue = random.Random(seed), FairQueue[tuple[Connection, int]]()
    clients = [client(number, f"10.0.0.{number % 3}") for number in range(7)]
    added, last = dict.fromkeys(clients, 0), dict.fromkeys(clients, -1)
    waiting = list[tuple[Connection, int]]()
    for _ in range(2000):
        if chance.random() < 0.55:
            connection = chance.choice(clients)
            queue.add(connection, (connection, added[connection]))
            waiting.append((connection, added[connection]))
            added[connection] += 1
        elif (item := queue.take()) is not None:
            waiting.remove(item)
            assert item[1] > last[item[0]]
            last[item[0]] = item[1]
        one = chance.choice(clients)
        assert queue.of_connection(one) == sum(owner == one for owner, _ in waiting)
        assert queue.of_host(one) == sum(owner.host == one.host for owner, _ in waiting)
        assert len(queue) == len(waiting)
    even = queue.take_all(lambda item: item[1] % 2 == 0)
    assert sorted(even) == sorted(item for item in waiting if item[1] % 2 == 0)
    assert sorted(queue.take_all()) == sorted(item for item in waiting if item[1] % 2)
    assert len(queue) == 0


def test_the_last_item_of_the_host_with_the_most_is_pushed_out_of_its_longest_connection() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.add(client(1, "10.0.0.1"), f"a{number}")
    queue.add(client(2, "10.0.0.1"), "b0")
    queue.add(client(1, "10.0.0.2"), "c0")
    newcomer = client(1, "10.0.0.3")
    assert [queue.push_out(newcomer, of_own_host=False) for _ in range(4)] == ["a2", "a1", "a0", None]
    assert queue.push_out(newcomer, of_own_host=True) is None
    assert taken(queue) == ["b0", "c0"] and len(queue) == 0


def test_a_connection_with_fewer_items_pushes_one_of_its_own_host_out() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.add(client(1, "10.0.0.1"), f"a{number}")
    for number in range(9):
        queue.add(client(1, "10.0.0.2"), f"c{number}")
    own = client(2, "10.0.0.1")
    assert queue.push_out(own, of_own_host=True) == "a2"
    queue.add(own, "b0")
    assert queue.push_out(own, of_own_host=True) is None, "two and one: a swap of shares is not fairer"
    assert queue.push_out(own, of_own_host=False) == "c8"
    assert queue.push_out(client(1, "10.0.0.2"), of_own_host=False) is None
    assert taken(queue) == ["a0", "c0", "b0", "c1", "a1", "c2", "c3", "c4", "c5", "c6", "c7"]


@pytest.mark.parametrize("seed", range(5))
def test_pushes_keep_the_counts_exact_and_end_with_even_shares(seed: int) -> None:
    chance, queue = random.Random(seed), FairQueue[Connection]()
    clients = [client(number, f"10.0.0.{number % 3}") for number in range(9)]
    for _ in range(18):
        queue.add(clients[0], clients[0])
    for _ in range(500):
        one = chance.choice(clients)
        if (out := queue.push_out(one, of_own_host=False)) is not None:
            assert out != one
            queue.add(one, one)
    assert len(queue) == 18 and [queue.of_host(one) for one in clients[:3]] == [6, 6, 6]
    assert [queue.of_connection(one) for one in clients] == [2] * 9
    assert sorted(queue.take_all()) == sorted(clients * 2)
