"""The table of polls of C and its twin after the same random events."""

from __future__ import annotations

import random

import pytest

from ringmq.native import ffi, lib
from ringmq.pop.polls_twin import ALL_QUEUES, NOTIFICATION, POP, Client, Key, Limits, PollsTwin

SEEDS = range(40)
STEPS = 600
TOPICS, GROUPS, QUEUES = 6, 3, 3
NEVER = (1 << 63) - 1
NONE = int(lib.RMQ_NONE)
WIDE = Limits(1000, 1000, 1000)


class NativePolls:
    """The table of C with the calls of the twin."""

    def __init__(self, now_ms: int) -> None:
        opened = lib.rmq_pop_polls_open(TOPICS, GROUPS, now_ms)
        self.native = ffi.gc(opened, lib.rmq_pop_polls_close)

    def add(self, key: Key, client: Client, serial: int, due_ms: int, size: int, limits: Limits) -> bool:
        ask = ffi.new("struct rmq_pop_poll_ask *", {"key": key._asdict(), "serial": serial, "due_ms": due_ms})
        ask.role, ask.role_generation, ask.connection, ask.connection_generation = client
        request = serial.to_bytes(4, "little") * (size // 4)
        bounds = ffi.new("struct rmq_pop_poll_limits *", tuple(limits))
        return int(lib.rmq_pop_polls_add(self.native, bounds, ask, request, len(request))) != NONE

    def end(self, serial: int) -> None:
        lib.rmq_pop_polls_end(self.native, self.number(serial))

    def number(self, serial: int) -> int:
        found = int(lib.rmq_pop_polls_named(self.native, serial))
        assert found != NONE and self.serial(found) == serial
        return found

    def serial(self, number: int) -> int:
        poll = lib.rmq_pop_polls_at(self.native, number)
        serial = int(poll.ask.serial)
        kept = bytes(ffi.buffer(poll.request, poll.request_bytes))
        assert kept == serial.to_bytes(4, "little") * (len(kept) // 4), "the request is that of the poll"
        return serial

    def closed(self, client: Client) -> int:
        return int(lib.rmq_pop_polls_closed(self.native, *client))

    def restarted(self, role: int, generation: int) -> int:
        return int(lib.rmq_pop_polls_restarted(self.native, role, generation))

    def count_of(self, key: Key) -> int:
        return int(lib.rmq_pop_polls_count_of(self.native, ffi.new("struct rmq_pop_key *", tuple(key))))

    def told_to(self, key: Key) -> int:
        return int(lib.rmq_pop_polls_told_to(self.native, ffi.new("struct rmq_pop_key *", tuple(key))))

    def tell_to(self, key: Key, ends: int) -> None:
        lib.rmq_pop_polls_tell_to(self.native, ffi.new("struct rmq_pop_key *", tuple(key)), ends)

    @property
    def keys(self) -> set[Key]:
        found, at, key = set[Key](), 0, ffi.new("struct rmq_pop_key *")
        while (at := int(lib.rmq_pop_polls_key_from(self.native, at, key))) != NONE:
            found.add(Key(int(key.topic_id), int(key.group_id), int(key.queue_id), int(key.kind)))
            at += 1
        return found

    def set_retries(self, key: Key, v1: int | None, v2: int | None) -> None:
        ids = [NONE if topic_id is None else topic_id for topic_id in (v1, v2)]
        lib.rmq_pop_polls_set_retries(self.native, ffi.new("struct rmq_pop_key *", tuple(key)), *ids)

    def wake_queue(self, topic_id: int, queue_id: int) -> int:
        return int(lib.rmq_pop_polls_wake_queue(self.native, topic_id, queue_id))

    def wake_group(self, group_id: int) -> None:
        lib.rmq_pop_polls_wake_group(self.native, group_id)

    def wake_key(self, key: Key) -> None:
        lib.rmq_pop_polls_wake_key(self.native, ffi.new("struct rmq_pop_key *", tuple(key)))

    def take_awake(self) -> list[int]:
        found, number = list[int](), int(lib.rmq_pop_polls_take_awake(self.native))
        while number != NONE:
            found.append(self.serial(number))
            number = int(lib.rmq_pop_polls_next_of(self.native, number))
        return found

    def resume(self, serial: int) -> None:
        lib.rmq_pop_polls_resume(self.native, self.number(serial))

    @property
    def is_awake(self) -> bool:
        return bool(lib.rmq_pop_polls_is_awake(self.native))

    def put_behind(self, serial: int) -> None:
        lib.rmq_pop_polls_put_behind(self.native, self.number(serial))

    @property
    def is_behind(self) -> bool:
        return bool(lib.rmq_pop_polls_is_behind(self.native))

    def go_on(self, room: int) -> None:
        lib.rmq_pop_polls_go_on(self.native, room)

    def due(self, now_ms: int) -> int | None:
        steps = ffi.new("uint32_t *", 1 << 20)
        found = int(lib.rmq_pop_polls_due(self.native, now_ms, steps))
        return None if found == NONE else self.serial(found)

    @property
    def next_ms(self) -> int:
        return int(lib.rmq_pop_polls_next_ms(self.native))


class Play:
    """Random events for both."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = self.random.choice((5, 4_000_000, 2**32 - 900))
        self.native, self.twin = NativePolls(self.now_ms), PollsTwin()
        self.limits = self.random.choice((WIDE, Limits(12, 1000, 1000), Limits(1000, 4, 1000), Limits(1000, 1000, 2)))
        self.serial = self.generation = 0

    def both(self, name: str, *args: object) -> object:
        """Call both, and return what both return."""
        seen, expected = getattr(self.native, name)(*args), getattr(self.twin, name)(*args)
        assert seen == expected, (name, args)
        return expected

    def key(self) -> Key:
        queue_id = self.random.choice((ALL_QUEUES, ALL_QUEUES, *range(QUEUES)))
        kind = self.random.choice((POP, NOTIFICATION))
        return Key(self.random.randint(1, TOPICS // 2), self.random.randint(1, GROUPS), queue_id, kind)

    def client(self) -> Client:
        generation = max(0, self.generation - self.random.randrange(2))
        return Client(self.random.randint(8, 9), generation, self.random.randrange(4), self.random.randrange(2))

    def some(self) -> int | None:
        return self.random.choice(sorted(self.twin.polls)) if self.twin.polls else None

    def add(self) -> None:
        self.serial += 1
        due_ms = self.now_ms + self.random.choice((1, 3, 64, 900, 15_000, 3_600_000))
        size = 4 * self.random.choice((0, 1, 30))
        self.both("add", self.key(), self.client(), self.serial, due_ms, size, self.limits)

    def end(self) -> None:
        if (serial := self.some()) is not None:
            self.both("end", serial)

    def close(self) -> None:
        self.both("closed", self.client())

    def restart(self) -> None:
        if self.random.random() < 0.1:
            self.generation += 1
            self.both("restarted", self.random.randint(8, 9), self.generation)

    def retries(self) -> None:
        topics = [None, *range(TOPICS // 2 + 1, TOPICS + 1)]
        self.both("set_retries", self.key(), self.random.choice(topics), self.random.choice(topics))

    def arrival(self) -> None:
        self.both("wake_queue", self.random.randint(1, TOPICS + 2), self.random.randrange(QUEUES))

    def change(self) -> None:
        if self.random.random() < 0.3:
            self.both("wake_group", self.random.randint(1, GROUPS + 2))
        else:
            self.both("wake_key", self.key())

    def tell(self) -> None:
        self.both("tell_to", self.key(), self.random.randrange(100))

    def serve(self) -> None:
        serials = self.both("take_awake")
        assert isinstance(serials, list)
        ended = self.random.randrange(3)
        for serial in serials[:ended]:
            self.both("end", serial)
        if serials[ended:] and self.random.random() < 0.5:
            self.both("resume", self.random.choice(serials[ended:]))

    def behind(self) -> None:
        if (serial := self.some()) is not None:
            self.both("put_behind", serial)

    def go_on(self) -> None:
        self.both("go_on", self.random.choice((0, 1, 100)))

    def time(self) -> None:
        self.now_ms += self.random.choice((0, 1, 5, 70, 1000, 20_000))
        while (serial := self.both("due", self.now_ms)) is not None:
            self.both("end", serial)

    def look(self) -> None:
        """Compare the content of both."""
        assert lib.rmq_pop_polls_count(self.native.native) == len(self.twin.polls)
        for kind in range(lib.RMQ_POP_POLL_KINDS):
            expected_count = sum(poll.key.kind == kind for poll in self.twin.polls.values())
            assert lib.rmq_pop_polls_count_kind(self.native.native, kind) == expected_count
        for name in ("keys", "is_awake", "is_behind"):
            assert getattr(self.native, name) == getattr(self.twin, name), name
        for key in self.twin.keys:
            self.both("count_of", key)
            self.both("told_to", key)
        expected = self.twin.next_ms
        assert self.native.next_ms <= (NEVER if expected is None else expected)
        assert (self.native.next_ms == NEVER) == (expected is None)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_and_its_twin_agree(seed: int) -> None:
    play = Play(seed)
    events = [
        *[play.add] * 5, play.end, play.close, play.restart, play.retries, play.arrival, play.arrival, play.change,
        play.tell, play.serve, play.serve, play.behind, play.go_on, play.time,
    ]  # fmt: skip
    for _ in range(STEPS):
        play.random.choice(events)()
        play.look()
    while play.twin.polls:
        play.end()
    play.look()
    assert play.serial > STEPS // 8


def test_each_kind_has_limits_of_its_own() -> None:
    """A key has one poll, as its limit is that of those before; a kind has two keys, and three polls."""
    polls, limits = NativePolls(0), Limits(3, 2, 0)
    keys = [Key(1, 1, queue_id, kind) for kind in (POP, NOTIFICATION) for queue_id in (0, 0, 1, 2, 1)]
    results = [polls.add(key, Client(8, 1, 1, 1), serial, 9, 0, limits) for serial, key in enumerate(keys, 1)]
    assert results == [True, False, True, False, False] * 2
    assert polls.add(Key(1, 1, 2), Client(8, 1, 1, 1), 99, 9, 0, Limits(3, 3, 0))
    assert not polls.add(Key(1, 1, 3), Client(8, 1, 1, 1), 100, 9, 0, Limits(3, 9, 0))


def test_pops_are_served_from_the_oldest_on_and_notifications_from_the_newest_on() -> None:
    for kind, expected in ((POP, [1, 2, 3]), (NOTIFICATION, [3, 2, 1])):
        polls = NativePolls(0)
        for serial in (1, 2, 3):
            assert polls.add(Key(1, 1, 0, kind), Client(8, 1, 1, 1), serial, 9, 0, WIDE)
        polls.wake_queue(1, 0)
        assert polls.take_awake() == expected
        polls.resume(2)
        assert polls.take_awake() == expected[1:]


def test_requests_have_a_bound_together() -> None:
    polls = NativePolls(0)
    size = int(lib.RMQ_POP_POLLS_BYTES_MAX) // 2
    results = [
        polls.add(Key(1, 1, 0), Client(8, 1, 1, 1), serial, 9, size + 4 * (serial == 2), WIDE)
        for serial in (1, 2, 3, 4)
    ]
    assert results == [True, False, True, False]


def test_all_polls_of_a_read_worker_have_a_slot() -> None:
    """A poll's number is its slot."""
    polls, limits = NativePolls(0), Limits(1 << 31, 1 << 31, 1 << 31)
    most = int(lib.RMQ_POP_POLLS_MAX)
    assert most == lib.RMQ_HELD_SLOTS
    for serial in range(1, most + 1):
        assert polls.add(Key(1, 1, serial % 7), Client(8, 1, 1, 1), serial, 9, 0, limits)
    assert not polls.add(Key(1, 1, 0), Client(8, 1, 1, 1), most + 1, 9, 0, limits)
    assert polls.closed(Client(8, 1, 1, 1)) == most
    assert polls.add(Key(1, 1, 0), Client(8, 1, 1, 1), 1, 9, 0, limits)
