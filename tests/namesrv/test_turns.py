"""Hosts take turns, connections of a host do, and few large requests are under way at once."""

from collections import deque
from collections.abc import Callable

from ringmq.namesrv.turns import LARGE_MAX, TURN_S, Turns


class Loop:
    """A clock that work moves, and the functions of the next turns."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.next: deque[Callable[[], None]] = deque()
        self.turns = Turns(self.next.append, lambda: self.now_s)
        self.served: list[str] = []

    def run(self, turns: int = 1_000_000) -> int:
        done = 0
        while self.next and done < turns:
            self.next.popleft()()
            done += 1
        return done


class One:
    """A connection with `work` steps of `cost_s` each."""

    def __init__(self, loop: Loop, host: str, name: str, work: int, cost_s: float = 0.001, large: bool = False) -> None:
        self.host, self.name, self.work, self.cost_s = host, name, work, cost_s
        self.is_queued = self.waits_for_grant = False
        self.is_open = True
        self.loop = loop
        if large:
            loop.turns.ask_for_grant(self)
        else:
            loop.turns.add(self)

    def step(self) -> bool:
        if self.waits_for_grant or not self.work:
            return False
        self.work -= 1
        self.loop.now_s += self.cost_s
        self.loop.served.append(self.name)
        if not self.work:
            self.loop.turns.give_back(self)
        return self.work > 0


def test_hosts_take_turns_however_many_connections_one_has() -> None:
    loop = Loop()
    for number in range(100):
        One(loop, "flood", f"f{number}", 100)
    One(loop, "quiet", "q", 3)
    loop.run()
    assert [at for at, name in enumerate(loop.served) if name == "q"] == [1, 3, 5]
    assert len(loop.served) == 10_003


def test_connections_of_a_host_take_turns() -> None:
    loop = Loop()
    for name in "abc":
        One(loop, "h", name, 2)
    loop.run()
    assert loop.served == list("abcabc")


def test_a_turn_of_the_loop_ends_after_its_time() -> None:
    loop = Loop()
    One(loop, "h", "a", 100)
    loop.run(turns=1)
    assert len(loop.served) == round(TURN_S / 0.001)
    loop.run()
    assert len(loop.served) == 100


def test_few_large_requests_are_under_way_one_of_each_host() -> None:
    loop = Loop()
    many = [One(loop, f"h{number % 6}", f"{number}", 2, large=True) for number in range(24)]
    running = [one for one in many if not one.waits_for_grant]
    assert len(running) == LARGE_MAX
    assert len({one.host for one in running}) == LARGE_MAX
    loop.run()
    assert all(not one.work for one in many)


def test_a_connection_that_is_gone_gives_its_grant_and_its_place_back() -> None:
    loop = Loop()
    first = One(loop, "h", "first", 5, large=True)
    gone, last = One(loop, "h", "gone", 1, large=True), One(loop, "h", "last", 1, large=True)
    assert not first.waits_for_grant
    assert gone.waits_for_grant
    gone.is_open = False
    loop.turns.give_back(gone)  # has none
    assert last.waits_for_grant
    first.is_open, first.work = False, 0
    loop.turns.give_back(first)
    loop.run()
    assert loop.served == ["last"]
