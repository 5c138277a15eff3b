"""Twin of the table of polls (native/src/pop/pop_polls.c): dictionaries and lists, and polls by their serials."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from msgspec import Struct, field

from ringmq.native import lib

ALL_QUEUES = -1
BYTES_MAX: int = lib.RMQ_POP_POLLS_BYTES_MAX
POLLS_MAX: int = lib.RMQ_POP_POLLS_MAX
POP: int = lib.RMQ_POP_POLL_POP
NOTIFICATION: int = lib.RMQ_POP_POLL_NOTIFICATION


class Key(NamedTuple):
    """The topic, group and queue that polls of a kind wait for."""

    topic_id: int
    group_id: int
    queue_id: int
    kind: int = POP


class Client(NamedTuple):
    """A connection of a read worker."""

    role: int
    role_generation: int
    connection: int
    connection_generation: int


class Poll(Struct):
    """A poll that waits. `order`: polls with the same time are over in the order of their additions."""

    key: Key
    client: Client
    serial: int
    due_ms: int
    size: int
    order: int


class Limits(NamedTuple):
    """`struct rmq_pop_poll_limits`: each kind has its own count of them."""

    polls: int
    keys: int
    of_key: int


class _State(Enum):
    ASLEEP = 0
    AWAKE = 1
    BEHIND = 2


class _Key(Struct):
    polls: list[Poll] = field(default_factory=list)
    """In the order in which they are served: pops from the oldest on, notifications from the newest on."""
    retries: list[int | None] = field(default_factory=lambda: [None, None])
    told_to: int = 0
    state: _State = _State.ASLEEP
    start: int | None = None
    """The place of the poll with which it goes on. None: it begins with the first one."""


class PollsTwin:
    """The polls of one process."""

    def __init__(self) -> None:
        self.polls: dict[int, Poll] = {}
        self._keys: dict[Key, _Key] = {}
        self._of_topic: dict[int, list[tuple[Key, bool]]] = {}
        """The keys of a topic, the newest first, and whether it is a topic of their retries."""
        self._of_group: dict[int, list[Key]] = {}
        self._awake: list[Key] = []
        self._behind: list[Key] = []
        self._order = 0

    # ---- polls ----

    def add(self, key: Key, client: Client, serial: int, due_ms: int, size: int, limits: Limits) -> bool:
        """A poll waits. False: a limit is reached."""
        if self._is_full(key, size, limits):
            return False
        self._order += 1
        poll = Poll(key, client, serial, due_ms, size, self._order)
        if key not in self._keys:
            self._keys[key] = _Key()
            self._of_topic.setdefault(key.topic_id, []).insert(0, (key, False))
            self._of_group.setdefault(key.group_id, []).insert(0, key)
        known = self._keys[key]
        known.polls.insert(0 if key.kind == NOTIFICATION else len(known.polls), poll)
        if known.start is not None and key.kind == NOTIFICATION:
            known.start += 1
        self.polls[serial] = poll
        return True

    def _is_full(self, key: Key, size: int, limits: Limits) -> bool:
        known, count = self._keys.get(key), sum(poll.key.kind == key.kind for poll in self.polls.values())
        if count >= limits.polls or len(self.polls) >= POLLS_MAX:
            return True
        if sum(poll.size for poll in self.polls.values()) + size > BYTES_MAX:
            return True
        if known is not None:
            return len(known.polls) > limits.of_key
        return sum(other.kind == key.kind for other in self._keys) >= limits.keys

    def end(self, serial: int) -> None:
        """The poll is over."""
        poll = self.polls.pop(serial)
        known = self._keys[poll.key]
        if known.start is not None:
            known.start -= known.polls.index(poll) < known.start
        known.polls.remove(poll)
        if known.start == len(known.polls):
            known.start = None
        if known.polls:
            return
        self._leave(poll.key)
        self._of_topic[poll.key.topic_id].remove((poll.key, False))
        self._of_group[poll.key.group_id].remove(poll.key)
        for topic_id in known.retries:
            if topic_id is not None:
                self._of_topic[topic_id].remove((poll.key, True))
        del self._keys[poll.key]

    def closed(self, client: Client) -> int:
        """The polls of a closed connection are over. Returns their number."""
        return self._end_all(poll.serial for poll in list(self.polls.values()) if poll.client == client)

    def restarted(self, role: int, generation: int) -> int:
        """Those of older processes of a read worker are over. Returns their number."""
        return self._end_all(
            poll.serial
            for poll in list(self.polls.values())
            if poll.client.role == role and poll.client.role_generation < generation
        )

    def _end_all(self, serials: Iterable[int]) -> int:
        count = 0
        for serial in serials:
            self.end(serial)
            count += 1
        return count

    def count_of(self, key: Key) -> int:
        """Polls of a key."""
        known = self._keys.get(key)
        return 0 if known is None else len(known.polls)

    def told_to(self, key: Key) -> int:
        """The sum of the ends of queues that notifications of a key were told of, less those that are to be told."""
        known = self._keys.get(key)
        return 0 if known is None else known.told_to

    def tell_to(self, key: Key, ends: int) -> None:
        """The polls of a key are told of the queues up to these ends."""
        if key in self._keys:
            self._keys[key].told_to = ends

    @property
    def keys(self) -> set[Key]:
        """Those for which polls wait."""
        return set(self._keys)

    def set_retries(self, key: Key, v1: int | None, v2: int | None) -> None:
        """Topics of the retries of a key are known. A known one is not forgotten, another one takes its place."""
        known = self._keys.get(key)
        for number, topic_id in enumerate((v1, v2)):
            if known is not None and topic_id is not None and (before := known.retries[number]) != topic_id:
                if before is not None:
                    self._of_topic[before].remove((key, True))
                known.retries[number] = topic_id
                self._of_topic.setdefault(topic_id, []).insert(0, (key, True))

    # ---- wake-ups ----

    def wake_queue(self, topic_id: int, queue_id: int) -> int:
        """A message has come. Returns the number of keys that wait for it; one with two lists counts twice."""
        woken = [
            key
            for key, is_retry in self._of_topic.get(topic_id, [])
            if is_retry or key.queue_id in (ALL_QUEUES, queue_id)
        ]
        for key in woken:
            self._wake(key)
        return len(woken)

    def wake_group(self, group_id: int) -> None:
        """Something has changed for all keys of a group."""
        for key in self._of_group.get(group_id, []):
            self._wake_for_one(key)

    def wake_key(self, key: Key) -> None:
        """Something has changed for a key."""
        if key in self._keys:
            self._wake_for_one(key)

    def take_awake(self) -> list[int]:
        """The polls of the key that has been awake the longest, which is asleep now: all, or those with which it goes
        on, in the order in which they are served. []: none is awake."""
        if not self._awake:
            return []
        key = self._awake[0]
        known = self._keys[key]
        start, known.start = known.start or 0, None
        self._leave(key)
        return [poll.serial for poll in known.polls[start:]]

    def resume(self, serial: int) -> None:
        """The key of the poll is awake, and goes on with it, unless something wakes it before."""
        poll = self.polls[serial]
        self._wake(poll.key)
        self._keys[poll.key].start = self._keys[poll.key].polls.index(poll)

    @property
    def is_awake(self) -> bool:
        """True if some key is."""
        return bool(self._awake)

    def put_behind(self, serial: int) -> None:
        """A message is there for the poll's key, and cannot be given now."""
        key = self.polls[serial].key
        if self._keys[key].state is _State.ASLEEP:
            self._enter(key, _State.BEHIND)

    @property
    def is_behind(self) -> bool:
        """True if some key is."""
        return bool(self._behind)

    def go_on(self, room: int) -> None:
        """Wake keys that are behind, those that are so the longest."""
        for key in self._behind[:room]:
            self._wake(key)

    def _wake_for_one(self, key: Key) -> None:
        """No message has come, but one poll may find something."""
        self._keys[key].told_to -= 1
        self._wake(key)

    def _wake(self, key: Key) -> None:
        self._keys[key].start = None
        if self._keys[key].state is not _State.AWAKE:
            self._leave(key)
            self._enter(key, _State.AWAKE)

    def _enter(self, key: Key, state: _State) -> None:
        self._keys[key].state = state
        (self._awake if state is _State.AWAKE else self._behind).append(key)

    def _leave(self, key: Key) -> None:
        known = self._keys[key]
        if known.state is not _State.ASLEEP:
            (self._awake if known.state is _State.AWAKE else self._behind).remove(key)
        known.state = _State.ASLEEP

    # ---- time ----

    def due(self, now_ms: int) -> int | None:
        """The poll whose time is over the longest."""
        first = min(self.polls.values(), key=lambda poll: (poll.due_ms, poll.order), default=None)
        return None if first is None or first.due_ms > now_ms else first.serial

    @property
    def next_ms(self) -> int | None:
        """The time at which the next poll is over. C may say an earlier one."""
        return min((poll.due_ms for poll in self.polls.values()), default=None)
