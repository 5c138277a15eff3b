"""A port in memory with a plain model of write, for the simulation of submissions.

The owner of the port dies at any of POINTS. Bytes count: write reads a request's bytes when it takes the request, so an
owner that gives them out too early stores something else.
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ringmq.ipc.ports import mark_of, parts_of_mark, refusal_at, tally
from ringmq.ipc.republish_words import PROGRESS
from ringmq.native import lib
from ringmq.services.kit.arena import Arena, ArenaRing, ArenaSlots, fit
from ringmq.services.kit.flight import AGAIN, RIDER, Result
from ringmq.services.kit.shared_port import USER_SHIFT, User
from ringmq.services.kit.submissions import EachAlone, InOrder

POINTS = {
    "port-claimed": "a replacement has taken the port",
    "port-request-filled": "a batch is in the ring, and not published",
    "port-requests-published": "a batch is published",
    "progress-written": "the progress is a step ahead of the ring of completions",
    "port-completions-done": "completions are returned",
    "port-acknowledged": "a refusal is acknowledged, and nothing is submitted behind it",
}
"""Steps of an owner at which it dies. Those with `port-` are the crash points of native/src/plane/port.c."""
ROLE = 24
LANES = 2
RING = 12
ARENA = 97
SIZE_MAX = 20
CHAIN_MAX = 4
FIRST_TOKEN = 2 << USER_SHIFT
UNKNOWN = 1 << 40
REFUSED = lib.RMQ_CAUSE_HELD, lib.RMQ_CAUSE_SEGMENT_LATE, lib.RMQ_CAUSE_QUEUE_SLOT, lib.RMQ_CAUSE_MESSAGE_SIZE


class Killed(Exception):
    """The owner dies."""


@dataclass
class Request:
    """A request as the owner makes it; write adds the generation."""

    at: int
    length: int
    content: Any
    """Read by write if its bytes are untouched."""
    token: int = 0
    flags: int = 0
    generation: int = 0
    position: int = 0


@dataclass
class Stored:
    """A record of the log."""

    content: Any
    token: int
    chain: int
    """Equal for the records of a chain."""


@dataclass
class Completion:
    token: int
    code: int
    cause: int
    queue_offset: int
    commit_log_offset: int
    bytes: int
    generation: int
    cause_errno: int = 0


@dataclass
class SimPort:
    """The port and write. It lives over deaths of its owner."""

    chance: random.Random
    is_ordered: bool
    log: list[Stored] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)
    """Content by byte of the arena."""
    ring: deque[Request] = field(default_factory=deque)
    head = generation = acknowledged = refused_at = 0
    rings: tuple[deque[Completion], deque[Completion]] = field(default_factory=lambda: (deque(), deque()))
    parked: deque[Completion] = field(default_factory=deque)
    refuses = False
    kills = True
    point_hits: dict[str, int] = field(default_factory=dict)
    stored_at: dict[Any, list[int]] = field(default_factory=dict)
    """By content."""
    faults: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    """By content of a refused request: that of the one at fault, and its cause."""
    row = SimpleNamespace(role=ROLE)
    user: Any = None
    arena = bytes(ARENA)

    def pass_point(self, name: str) -> None:
        if self.kills and self.chance.random() < 0.01:
            self.point_hits[name] = self.point_hits.get(name, 0) + 1
            raise Killed

    # -- the owner ---------------------------------------------------------------------------------------------

    def claim(self) -> None:
        self.generation += 1
        self.pass_point("port-claimed")

    @property
    def room(self) -> int:
        return RING - len(self.ring)

    def submit(self, requests: list[Request], count: int = 1) -> int:
        assert count <= self.room
        self.pass_point("port-request-filled")
        for request in requests[:count]:
            request.generation, request.position = self.generation, self.head
            self.head += 1
            self.ring.append(request)
        self.pass_point("port-requests-published")
        return count

    def write_bytes(self, request: Request) -> None:
        for at in range(request.at, request.at + request.length):
            self.memory[at] = request.content

    def tally(self, ring: int, stored: Any, lanes: int, result: Any) -> int:
        found = list(itertools.islice(self.rings[ring], self.chance.randrange(1, 6)))
        marks = [0] * lanes
        tally(found, marks)
        for lane, offset in enumerate(marks):
            stored[lane] = max(stored[lane], offset)
        for one in found:
            result.inherited += one.generation != self.generation
            result.stored += one.bytes != 0
            if not one.bytes:
                if not result.refused:
                    result.first.code, result.first.cause = one.code, one.cause
                result.refused += 1
        return len(found)

    def done(self, ring: int, count: int) -> None:
        for _ in range(count):
            self.rings[ring].popleft()
        self.pass_point("port-completions-done")

    def add_user(self, user: User) -> None:
        self.user, user.first_token = user, FIRST_TOKEN

    def collect(self) -> None:
        """Of this generation, as SharedPort does with one user."""
        for ring in self.rings:
            while ring:
                found = ring.popleft()
                self.pass_point("port-completions-done")
                if found.generation == self.generation:
                    self.user.completed(found)

    @property
    def has_answers(self) -> bool:
        return any(self.rings)

    @property
    def answered(self) -> bool:
        if self.chance.random() < 0.3:  # write goes on behind the last look at the completions
            self.write()
            self.complete()
        return not self.ring and not self.parked

    def acknowledge(self) -> None:
        self.acknowledged = self.head
        self.pass_point("port-acknowledged")

    # -- write -------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write takes some chains from the ring."""
        for _ in range(self.chance.randrange(1, 5)):
            chain = list[Request]()
            while self.ring and (not chain or chain[-1].flags & lib.RMQ_APPEND_FLAG_WITH_NEXT):
                chain.append(self.ring.popleft())
            own = [request for request in chain if request.generation == self.generation]
            assert not own or (own == chain and not own[-1].flags & lib.RMQ_APPEND_FLAG_WITH_NEXT)
            if own:
                self._store(own)
            if self.chance.random() < 0.5:
                self.complete()

    def _store(self, chain: list[Request]) -> None:
        position = chain[0].position
        if self.is_ordered:
            self.refused_at = refusal_at(self.refused_at, self.acknowledged, position)
        if self.is_ordered and self.refused_at:
            for request in chain:
                self._answer(request, 14, lib.RMQ_CAUSE_BEHIND_REFUSED)
        elif self.refuses and self.chance.random() < 0.7:
            self.refused_at = position + 1
            at_fault = self.chance.randrange(len(chain))
            cause = self.chance.choice(REFUSED)
            for number, request in enumerate(chain):
                self.faults[request.content] = chain[at_fault].content, cause
                self._answer(request, 14, cause if number == at_fault else lib.RMQ_CAUSE_CHAIN_REFUSED)
        else:
            first = len(self.log)
            for request in chain:
                read = {self.memory[at] for at in range(request.at, request.at + request.length)}
                assert read <= {request.content}, f"the bytes of {request} were given out again: {read}"
                self.stored_at.setdefault(request.content, []).append(len(self.log))
                self.log.append(Stored(request.content, request.token, first))
                self._answer(request, 0, 0, len(self.log) - 1)

    def _answer(self, request: Request, code: int, cause: int, at: int = -1) -> None:
        length = 10 if at >= 0 else 0
        found = Completion(request.token, code, cause, at, 10 * at if length else 0, length, request.generation)
        if length and self.chance.random() < 0.3:  # waits for the disk
            self.parked.append(found)
        else:
            self.rings[0].append(found)

    def complete(self) -> None:
        """The disk has some records."""
        for _ in range(self.chance.randrange(len(self.parked) + 1)):
            self.rings[1].append(self.parked.popleft())

    def lose(self) -> None:
        """The plane is lost with all that is in memory."""
        self.ring.clear()
        self.parked.clear()
        for ring in self.rings:
            ring.clear()
        self.head = self.acknowledged = self.refused_at = 0


class Pace:
    """Clients are busy now and then."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def allowance(self, now_ms: int) -> int:
        return self._chance.choice((0, 1, 5, 100))

    def published(self, count: int) -> None:
        """Nothing is counted."""


class World(ABC):
    """One port, its owner, and a clock. `make_owner` makes an owner at a start and behind each death."""

    def __init__(self, seed: int, make_owner: Callable[[World], Any], *, is_ordered: bool) -> None:
        self.chance = random.Random(seed)
        self.port = SimPort(self.chance, is_ordered)
        self.words = [0] * (PROGRESS + LANES)
        self.now_ms, self.deaths = 0, 0
        self.said = list[str]()
        self._make_owner = make_owner
        self.owner: Any = None

    def turn(self) -> None:
        """A turn of the owner, in which it may die."""
        try:
            self.owner = self.owner or self._make_owner(self)
            self.owner.turn()
        except Killed:
            self.deaths += 1
            self.owner = None

    def run(self, steps: int, *, loses: bool) -> None:
        """Random steps, then some without faults."""
        for draw in (self.chance.random() for _ in range(steps)):
            if draw < 0.5:
                self.turn()
            elif draw < 0.85:
                self.port.write()
            elif draw < 0.92:
                self.port.complete()
            elif draw < 0.96:
                self.port.refuses = not self.port.refuses
            elif draw < 0.98 and loses:
                self.port.lose()
                self.words[:] = [0] * len(self.words)
                self.owner = None
            self.now_ms += self.chance.choice((0, 1, 20, 300))
        self.port.refuses = self.port.kills = False

    @abstractmethod
    def check(self) -> None:
        """Hold what must be true of the log at any time."""

    @abstractmethod
    def undone(self) -> Callable[[], bool]:
        """True while something has to get into the log. Called when no fault comes any more."""

    def settle(self) -> None:
        """Go on without faults until all is done."""
        undone = self.undone()
        for _ in range(2000):
            if self.owner is not None and not undone():
                return
            self.turn()
            self.port.write()
            self.port.complete()
            self.now_ms += 100
        raise AssertionError("it did not come to an end")


class OrderedOwner:
    """Publishes source offsets 0, 1, .. of LANES lanes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.next = [UNKNOWN] * LANES
        self.submissions = InOrder(
            world.port, world.words, Pace(world.chance), world.said.append, lanes=LANES, write_down=self._write_down,
            settle=self._settle,
        )  # type: ignore[arg-type] # fmt: skip

    def _write_down(self) -> None:
        words, stored = self.world.words, self.submissions.stored
        for lane in range(LANES):
            if stored[lane] > words[PROGRESS + lane] - 1 and stored[lane]:
                words[PROGRESS + lane] = stored[lane] + 1
                self.world.port.pass_point("progress-written")

    def _settle(self) -> bool:
        words = self.world.words
        if self.world.chance.random() < 0.2:  # the queues have not the whole log yet
            self.next = [UNKNOWN] * LANES
            return False
        for lane in range(LANES):
            if not words[PROGRESS + lane]:  # the plane was lost: the log tells
                words[PROGRESS + lane] = 1 + len(self.world.lane(lane))
            self.next[lane] = self.submissions.stored[lane] = words[PROGRESS + lane] - 1
        return True

    def turn(self) -> None:
        chance, submissions = self.world.chance, self.submissions
        collected = submissions.collect(self.world.now_ms)
        assert not collected.has_settled or not self.world.port.ring, "something is in flight"
        if submissions.may_submit(self.world.now_ms) and submissions.room:
            lane = chance.randrange(LANES)
            count = min(submissions.room, chance.randrange(1, 9))
            requests = list[Request]()

            def make(start: int, end: int) -> int:
                for _ in range(count):
                    length, offset = chance.randrange(1, SIZE_MAX), self.next[lane] + len(requests)
                    if start + length > end:
                        break
                    token = mark_of(ROLE, lane, offset)
                    requests.append(Request(start, length, token, token))
                    self.world.port.write_bytes(requests[-1])
                    start += length
                return len(requests)

            if made := fit(submissions.arena, make):
                self.next[lane] += made
                submissions.submit(requests, made, requests[-1].at + requests[-1].length)


class OrderedWorld(World):
    """Judged by the log: each offset of a lane once and in order."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, OrderedOwner, is_ordered=True)

    def lane(self, lane: int) -> list[int]:
        parts = (parts_of_mark(stored.content) for stored in self.port.log)
        return [offset for _, of, offset in parts if of == lane]

    def check(self) -> None:
        for lane in range(LANES):
            assert self.lane(lane) == list(range(len(self.lane(lane))))
            assert self.words[PROGRESS + lane] - 1 <= len(self.lane(lane))

    def undone(self) -> Callable[[], bool]:
        """The lanes go on."""
        enough = [len(self.lane(lane)) + 2 for lane in range(LANES)]
        return lambda: any(len(self.lane(lane)) < count for lane, count in enumerate(enough))


@dataclass
class Item:
    """A thing that a client wants stored. It is sent again while it has no answer."""

    number: int
    attempts: int = 0
    died: int = 0
    """Attempts that ended with the owner."""
    results: list[Result[Any]] = field(default_factory=list)


class AloneOwner:
    """Submits single items, and chains with a record of their own at the end, in slots or in a ring."""

    def __init__(self, world: AloneWorld) -> None:
        self.world = world
        arena: Arena = ArenaRing(ARENA, 7) if world.uses_ring else ArenaSlots(CHAIN_MAX * SIZE_MAX, 3, 7)
        world.port.claim()
        self.submissions = EachAlone[tuple[Item, int]](world.port, arena)  # type: ignore[arg-type]

    def turn(self) -> None:
        for result in self.submissions.results():
            self.world.judge(*result.what, result)
        chance = self.world.chance
        if chance.random() < 0.8:
            self._submit(chance.randrange(1, CHAIN_MAX), is_chain=chance.random() < 0.5)

    def _submit(self, count: int, *, is_chain: bool) -> None:
        submissions, world = self.submissions, self.world
        if world.port.room < count + 1:
            return
        items = [world.next_item() for _ in range(count)]
        riders = [is_chain and world.chance.random() < 0.2 for _ in items]
        contents = [(item.number, item.attempts) for item, rides in zip(items, riders, strict=True) if not rides]
        requests = list[Request]()

        def make(start: int, end: int) -> int:
            for content in [*contents, *["op"] * is_chain]:
                length = world.chance.randrange(1, SIZE_MAX)
                if start + length > end:
                    requests.clear()
                    return 0
                requests.append(Request(start, length, content))
                start += length
            return len(requests)

        made = fit(submissions.arena, make)
        if not made:
            world.waiting.extendleft(items)
            return
        for request in requests:
            world.port.write_bytes(request)
        end, whats = requests[-1].at + requests[-1].length, list[tuple[Item, int]]()
        for item in items:
            whats.append((item, item.attempts))
            item.attempts += 1
            world.in_flight.append(item)
        if is_chain:
            numbers = iter(range(made))
            tied = [(what, RIDER if rides else next(numbers)) for what, rides in zip(whats, riders, strict=True)]
            submissions.submit_tied(requests, made, tied, end)
        else:
            submissions.submit(requests, whats, end)


class AloneWorld(World):
    """Judged by the log: a result tells the truth about its attempt, and no item is lost."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, AloneOwner, is_ordered=False)
        self.uses_ring = bool(seed % 2)
        self.items = list[Item]()
        self.waiting = deque[Item]()
        self.in_flight = list[Item]()
        self.outcomes: dict[str, int] = {}
        self.takes_new = True

    def next_item(self) -> Item:
        if self.waiting:
            return self.waiting.popleft()
        self.items.append(Item(len(self.items)))
        return self.items[-1]

    def turn(self) -> None:
        """Items of a dead owner are sent again."""
        super().turn()
        if self.owner is None:
            for item in self.in_flight:
                item.died += 1
            self.waiting += self.in_flight
            self.in_flight.clear()

    def judge(self, item: Item, attempt: int, result: Result[Any]) -> None:
        assert attempt == item.attempts - 1
        self.in_flight.remove(item)
        item.results.append(result)
        found = self.port.stored_at.get((item.number, attempt), [])
        kind = "stored" if result.is_stored else "again" if result.code == AGAIN else "refused"
        self.outcomes[kind] = self.outcomes.get(kind, 0) + 1
        if not result.is_stored:
            assert not found, "a refused item is in the log"
            self._judge_refusal((item.number, attempt), result)
            self.waiting.append(item)
        elif result.queue_offset >= 0:
            assert [result.queue_offset] == found and result.commit_log_offset == 10 * found[0]
            chain, last = self.port.log[found[0]].chain, found[0]
            while last + 1 < len(self.port.log) and self.port.log[last + 1].chain == chain:
                last += 1
            assert result.commit_log_end == 10 * (last + 1)
        else:
            assert self.port.log[result.commit_log_offset // 10].content == "op", "a rider is listed in the last record"

    def _judge_refusal(self, content: tuple[int, int], result: Result[Any]) -> None:
        """The cause is that of the request at fault. The others go again if it was an item's own fault."""
        if content not in self.port.faults:
            return  # a rider
        at_fault, cause = self.port.faults[content]
        is_others = at_fault not in (content, "op") and cause in (lib.RMQ_CAUSE_QUEUE_SLOT, lib.RMQ_CAUSE_MESSAGE_SIZE)
        assert (result.code == AGAIN, result.cause) == (is_others, cause)

    def undone(self) -> Callable[[], bool]:
        """Each item of now is stored."""
        items = list(self.items)
        return lambda: any(not any(result.is_stored for result in item.results) for item in items)

    def lost(self) -> Iterator[Item]:
        """Items with neither a record nor another try."""
        for item in self.items:
            is_stored = any(result.is_stored for result in item.results)
            if not is_stored and item not in self.waiting and item not in self.in_flight:
                yield item

    def check(self) -> None:
        """Chains are whole, an item is stored once and once more for each death at most."""
        assert not list(self.lost())
        sizes: dict[int, int] = {}
        for number, stored in enumerate(self.port.log):
            assert number == stored.chain + sizes.get(stored.chain, 0)
            sizes[stored.chain] = sizes.get(stored.chain, 0) + 1
        times: dict[int, int] = {}
        for stored in self.port.log:
            if stored.content != "op":
                times[stored.content[0]] = times.get(stored.content[0], 0) + 1
        assert all(count <= 1 + self.items[number].died for number, count in times.items())
