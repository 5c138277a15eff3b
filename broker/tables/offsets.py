"""Consumer offsets by (group, topic, queue) in the plane's table, and the file `consumerOffset.json`.

Offsets of live queues are in the plane, where pulls commit, too. Offsets of topics or queues that do not exist (any
more, or yet) are kept beside it, so that the file keeps them. They move to the plane when the topic is published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables import file_entries
from ringmq.broker.tables.file_entries import LeaveOut
from ringmq.broker.tables.groups import check_group_name
from ringmq.broker.tables.pairs import PairIndex
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.topics import check_topic_name
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting import json_body
from ringmq.remoting.config_beans import DataVersion
from ringmq.remoting.errors import RequestError
from ringmq.remoting.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from ringmq.store.config_files import encode_config
from ringmq.store.record_values import QUEUE_ID_MAX, is_queue_id

FILE = "consumerOffset.json"
SEPARATOR = "@"
UPDATE_VERSION_STEP = 500
STEP_KEYS = 32
"""Pairs of a topic and a group of one step: some 0.5 ms."""
DISCOVER_MAX = 256
"""Entries of the plane whose names one call looks up, in some 0.5 ms."""
STRAYS_MAX = 65_536  # offsets of queues that do not exist; requests may add them

OffsetKey = tuple[str, str]
"""(topic, group)"""
CommitKey = tuple[str, str, int]
"""(group, topic, queue id)"""


class _Reset(NamedTuple):
    """A reset of a queue. `popped`: messages that pops had given to the group before."""

    offset: int
    popped: int


class OffsetTable:
    """Offsets of all groups, and the resets that wait for a pull or a pop (spec remoting 5.3, code 222)."""

    def __init__(self, plane: PlaneProtocol, tables: PlaneTables) -> None:
        self._plane = plane
        self._tables = tables
        self._strays: dict[OffsetKey, dict[int, int]] = {}
        self.stray_count = 0
        """Queues that have an offset here and do not exist."""
        self._stray_pairs = PairIndex()
        self._resets: dict[OffsetKey, dict[int, _Reset]] = {}
        self._reset_pairs = PairIndex()
        self._queues: dict[OffsetKey, set[int]] = {}
        """Queues that have, or have had, an offset in the plane. The plane shows if they have one now."""
        self._pairs = PairIndex()
        """The keys of `_queues`."""
        self._all_pairs = (self._stray_pairs, self._reset_pairs, self._pairs)
        self._known_slots: set[tuple[int, int]] = set()
        self._discovered = 0
        """Entries of the plane's table whose names are known. An entry keeps its group and queue slot."""
        self.data_version = DataVersion()
        self._updates = 0
        self.dirty = False
        self.erasures = 0
        """The number of erasures of offsets since the start."""
        self.erasures_to_save = 0
        """So many of them are in the file before control answers a request again."""
        self._transactions: dict[str, int] = {}
        """By topic, the progress with transactions (queue 0 of TRANSACTION_GROUP)."""
        self.committed_here: set[CommitKey] = set()
        """On a slave: commits of consumers that its master does not know yet."""

    # ---- one offset ----

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset. -1 = none. A waiting reset wins."""
        reset = self._waiting_reset(group, topic, queue_id)
        return self._committed(group, topic, queue_id) if reset is None else reset

    def _committed(self, group: str, topic: str, queue_id: int) -> int:
        slot = self._tables.slot(topic, queue_id)
        group_id = self._plane.group_find(group)
        if slot is None or group_id is None:
            return self._strays.get((topic, group), {}).get(queue_id, -1)
        return self._plane.offset_get(group_id, slot)

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset of the group's latest pull. -1 = none since the start."""
        slot = self._tables.slot(topic, queue_id)
        group_id = self._plane.group_find(group)
        return -1 if slot is None or group_id is None else self._plane.pull_stats_next(group_id, slot)

    def open_messages(self, group: str, topic: str, queue_id: int) -> int | None:
        """Open messages of the queue, a second old. None: the group does not pop it, as far as is known."""
        slot = self._tables.slot(topic, queue_id)
        group_id = self._plane.group_find(group)
        found = -1 if slot is None or group_id is None else self._plane.pull_stats_open(group_id, slot)
        return None if found < 0 else found

    def popped(self, group: str, topic: str, queue_id: int) -> int:
        """Messages of the queue that pops have given to the group since the start."""
        slot = self._tables.slot(topic, queue_id)
        group_id = self._plane.group_find(group)
        return 0 if slot is None or group_id is None else self._plane.popped(group_id, slot)

    def put(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Commit an offset. Smaller ones are accepted. Raises PlaneFullError."""
        if (
            self.stray_count >= STRAYS_MAX
            and self._tables.slot(topic, queue_id) is None
            and queue_id not in self._strays.get((topic, group), ())
        ):
            raise PlaneFullError(f"{self.stray_count} offsets of queues that do not exist are kept, more are refused")
        self.restore(group, topic, queue_id, offset, now_ms)

    def restore(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Set an offset from a file or a master, even if many of its queues are gone. Raises PlaneFullError."""
        slot = self._tables.slot(topic, queue_id)
        if slot is None:
            strays = self._strays.setdefault((topic, group), {})
            self._stray_pairs.add(topic, group)
            self.stray_count += queue_id not in strays
            strays[queue_id] = offset
        else:
            if group == TRANSACTION_GROUP and not queue_id:
                self._transactions[topic] = offset
            group_id = self._tables.group_id(group)
            self._plane.offset_put(group_id, slot, offset)
            self._note(group_id, slot, group, topic, queue_id)
        self._step(now_ms)

    def drain(self, now_ms: int) -> int:
        """Apply commits of pulls. Returns the number of changes. Raises PlaneFullError."""
        changes = self._plane.offset_drain()
        if changes:
            self._step(now_ms, changes)
            self._keep_transactions(now_ms)
        self._discover(DISCOVER_MAX)
        return changes

    def _keep_transactions(self, now_ms: int) -> None:
        """Undo commits of pulls to the progress with transactions. By it, a start would pass over open halves."""
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            known = self._transactions.get(topic, -1)
            if self.get(TRANSACTION_GROUP, topic, 0) != known:
                self.restore(TRANSACTION_GROUP, topic, 0, max(known, 0), now_ms)

    # ---- resets ----

    def set_reset(
        self, group: str, topic: str, queue_id: int, offset: int, now_ms: int, *, popped: int, is_put: bool = False
    ) -> None:
        """Send the next pull of the queue to `offset`, unless a pop comes before. Raises PlaneFullError.

        The offset is committed, too (as `assignResetOffset` does), so that an offline group finds it after a restart.
        `popped`: the messages that pops had given before the reset. `is_put`: the worker that holds messages of the
        group has committed the offset.
        """
        if not is_put or self.get(group, topic, queue_id) < 0:
            self.put(group, topic, queue_id, offset, now_ms)
        self._resets.setdefault((topic, group), {})[queue_id] = _Reset(offset, popped)
        self._reset_pairs.add(topic, group)

    def _waiting_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The waiting reset of a queue. A pop ends it, too, as in stock: else a pull would go there a second time."""
        reset = self._resets.get((topic, group), {}).get(queue_id)
        if reset is None or self.popped(group, topic, queue_id) != reset.popped:
            return None
        return reset.offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """True if a reset waits for the queue."""
        return self._waiting_reset(group, topic, queue_id) is not None

    def keeps_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """True if the queue has a reset that no pull has taken, even if a pop has ended it."""
        return queue_id in self._resets.get((topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The waiting reset, which is erased. So is one that a pop has ended."""
        key = (topic, group)
        waiting = self._resets.get(key)
        if waiting is None:
            return None
        offset = self._waiting_reset(group, topic, queue_id)
        waiting.pop(queue_id, None)
        if not waiting:
            self._drop_resets(key)
        return offset

    def resets_of(self, group: str) -> dict[str, set[int]]:
        """Queues of the group with a reset that no pull has taken, by topic."""
        return {topic: set(self._resets[topic, group]) for topic in self._reset_pairs.topics_of(group)}

    def groups_to_reset(self, topic: str) -> list[str]:
        """Groups with a waiting reset of the topic."""
        return self._reset_pairs.groups_of(topic)

    # ---- many ----

    def table(self) -> dict[OffsetKey, dict[int, int]]:
        """Every offset."""
        return dict(self._all())

    def _all(self) -> Iterator[tuple[OffsetKey, dict[int, int]]]:
        """Every offset, each as of the moment of its read."""
        self._discover()
        for key in dict.fromkeys([*self._strays, *self._queues]):
            if offsets := self._offsets_of(key):
                yield key, offsets

    def _offsets_of(self, key: OffsetKey) -> dict[int, int]:
        """Queue -> offset of one group on one topic."""
        topic, group = key
        found = dict(self._strays.get(key, ()))
        group_id = self._plane.group_find(group)
        for queue_id in sorted(self._queues.get(key, ())):
            slot = self._tables.slot(topic, queue_id)
            offset = -1 if slot is None or group_id is None else self._plane.offset_get(group_id, slot)
            if offset >= 0:
                found[queue_id] = offset
        return found

    def of(self, group: str, topic: str) -> dict[int, int]:
        """The offsets of a group on a topic, by queue id."""
        self._discover()
        return self._offsets_of((topic, group))

    def topics_of(self, group: str) -> list[str]:
        """Topics for which the group has offsets (`whichTopicByConsumer`)."""
        return [topic for topic in self.known_topics_of(group) if self._offsets_of((topic, group))]

    def known_topics_of(self, group: str) -> list[str]:
        """Topics for which the group has offsets, or had some since the start: quickly found, some 3 us each."""
        self._discover()
        return sorted({*self._pairs.topics_of(group), *self._stray_pairs.topics_of(group)})

    def groups_on(self, topic: str) -> list[str]:
        """Groups that have offsets for the topic (`whichGroupByTopic`)."""
        self._discover()
        groups = {*self._pairs.groups_of(topic), *self._stray_pairs.groups_of(topic)}
        return sorted(group for group in groups if self._offsets_of((topic, group)))

    def on_topic_published(self, topic: str, now_ms: int) -> None:
        """Move the offsets beside the plane into it, for a topic that is published now."""
        for group in self._stray_pairs.groups_of(topic):
            for queue_id, offset in self._pop_strays((topic, group)).items():
                self.restore(group, topic, queue_id, offset, now_ms)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Erase the offsets of topics that are to be deleted. Call it while they are still live."""
        self._discover()
        for topic in topics:
            for group in {group for pairs in self._all_pairs for group in pairs.groups_of(topic)}:
                self._erase((topic, group))

    def forget_queues(self, group: str, topic: str, queue_ids: Collection[int]) -> None:
        """Erase the offsets of some queues of a topic."""
        group_id = self._plane.group_find(group)
        for queue_id in queue_ids:
            slot = self._tables.slot(topic, queue_id)
            if slot is not None and group_id is not None:
                self._plane.offset_put(group_id, slot, -1)
            elif self._strays.get((topic, group), {}).pop(queue_id, None) is not None:
                self.stray_count -= 1
        if queue_ids:
            self.note_erasure()

    def forget_group(self, group: str) -> None:
        """Erase every offset of a group."""
        self._discover()
        for topic in {topic for pairs in self._all_pairs for topic in pairs.topics_of(group)}:
            self._erase((topic, group))

    # ---- file ----

    def file_text(self) -> Steps[str]:
        """The content of consumerOffset.json, in stock's format."""
        version = self.data_version.to_json()
        topics: dict[str, list[str]] = {}
        lines: list[str] = []
        yield from self._discovering()
        for number, ((topic, group), queues) in enumerate(self._all(), 1):
            topics.setdefault(group, []).append(topic)
            lines.append(_lines("offsetTable", f"{topic}{SEPARATOR}{group}", queues))
            if number % STEP_KEYS == 0:
                yield
        group_lines = []
        for number, (group, names) in enumerate(topics.items(), 1):
            group_lines.append(_lines("groupTopicMap", group, tuple(names)))
            if number % STEP_KEYS == 0:
                yield
        head = encode_config(FILE, {"dataVersion": version}).removesuffix("\n}")
        return f"{head},\n{_member('groupTopicMap', group_lines)},\n{_member('offsetTable', lines)}\n}}"

    def body(self) -> Steps[bytes]:
        """The answer to 43."""
        text = bytearray(json_body.write_body({"dataVersion": self.data_version.to_json()})[:-1])
        text += b',"offsetTable":{'
        yield from self._discovering()
        for number, ((topic, group), queues) in enumerate(self._all(), 1):
            text += b"," if number > 1 else b""
            text += json_body.write_body({f"{topic}{SEPARATOR}{group}": queues})[1:-1]
            if number % STEP_KEYS == 0:
                yield
        return bytes(text + b"}}")

    def load(
        self, value: dict[str, Any], now_ms: int, *, into_plane: bool, leave_out: LeaveOut = file_entries.ignore
    ) -> None:
        """Load consumerOffset.json.

        `into_plane` False (control was restarted): the plane's offsets are newer, so only the others are read.
        """
        self.data_version = file_entries.version_of(value, now_ms, leave_out)
        for name, queues in json_body.mapping(value, "offsetTable").items():
            topic, separator, group = str(name).partition(SEPARATOR)
            if not separator or not isinstance(queues, dict):
                leave_out(f"offsets of {str(name)[:80]!r} are left out: wanted topic@group")
                continue
            try:
                check_names(topic, group)
            except RequestError as error:
                leave_out(f"offsets of {str(name)[:80]!r} are left out: {error}")
                continue
            found = file_entries.possible_entries(queues, f"the offset of {name}, queue", _from_file, leave_out)
            for _, (queue_id, offset) in found:
                if into_plane or self._tables.slot(topic, queue_id) is None:
                    self.restore(group, topic, queue_id, offset, now_ms)
        if not into_plane:
            for topic in (HALF_TOPIC, OP_HALF_TOPIC):
                self._transactions[topic] = self.get(TRANSACTION_GROUP, topic, 0)
        self.dirty = not into_plane  # offsets that the dead process did not save are only in the plane

    def _erase(self, key: OffsetKey) -> None:
        topic, group = key
        self._pop_strays(key)
        self._drop_resets(key)
        group_id = self._plane.group_find(group)
        for queue_id in self._queues.get(key, ()):
            slot = self._tables.slot(topic, queue_id)
            if slot is not None and group_id is not None and self._plane.offset_get(group_id, slot) >= 0:
                self._plane.offset_put(group_id, slot, -1)
        self.note_erasure()

    def note_erasure(self) -> None:
        """Offsets are erased that the file may hold. No deletion goes on before the file is written again."""
        self.dirty = True
        self.erasures += 1

    def note_holders_moved(self) -> None:
        """Another worker goes on at other offsets, and outlives control and this table: a later start must not find
        those of before in the file."""
        self.note_erasure()
        self.erasures_to_save = self.erasures

    def _drop_resets(self, key: OffsetKey) -> None:
        if self._resets.pop(key, None) is not None:
            self._reset_pairs.discard(*key)

    def _pop_strays(self, key: OffsetKey) -> dict[int, int]:
        strays = self._strays.pop(key, {})
        self.stray_count -= len(strays)
        self._stray_pairs.discard(*key)
        return strays

    def _note(self, group_id: int, slot: int, group: str, topic: str, queue_id: int) -> None:
        if (group_id, slot) not in self._known_slots:
            self._known_slots.add((group_id, slot))
            self._queues.setdefault((topic, group), set()).add(queue_id)
            self._pairs.add(topic, group)

    def _discovering(self) -> Steps[None]:
        """Look up all names that `_discover` would, some in each step."""
        while self._discover(DISCOVER_MAX) == DISCOVER_MAX:
            yield

    def _discover(self, count_max: int | None = None) -> int:
        """Look up the names of offsets that pulls have put into the plane. Returns the number of offsets.

        `drain` looks up some at a time, so that few are left when all are needed.
        """
        fresh = self._plane.offset_keys(self._discovered, count_max)
        self._discovered += len(fresh)
        for group_id, slot in fresh:
            if (group_id, slot) in self._known_slots:
                continue
            names = self._tables.names_of(group_id, slot)
            if names is not None:
                group, topic, queue_id = names
                self._note(group_id, slot, group, topic, queue_id)
        return len(fresh)

    def _step(self, now_ms: int, updates: int = 1) -> None:
        self.dirty = True
        self._updates += updates
        if self._updates >= UPDATE_VERSION_STEP:
            self._updates = 0
            self.data_version.next(now_ms)


def check_names(topic: str, group: str) -> None:
    """Raise RequestError for names that exceed the shared tables. Such a group or topic cannot exist here."""
    check_topic_name(topic)
    check_group_name(group)


def check_offset(queue_id: int, offset: int) -> None:
    """Raise ValueError unless the queue can have this offset. -1 = none."""
    if not is_queue_id(queue_id):
        raise ValueError(f"queue id {queue_id} is outside 0..{QUEUE_ID_MAX}")
    if offset < -1:
        raise ValueError(f"offset {offset} is below -1")


def _from_file(queue_id: str, offset: Any) -> tuple[int, int]:
    """Queue id and offset."""
    found = json_body.as_integer(queue_id, "queue id"), json_body.as_integer(offset, "offset")
    check_offset(*found)
    return found


def _lines(member: str, name: str, value: Any) -> str:
    """One entry of a member of the file."""
    return "\n".join(encode_config(FILE, {member: {name: value}}).split("\n")[2:-2])


def _member(name: str, lines: list[str]) -> str:
    return f'\t"{name}":{{\n' + ",\n".join(lines) + "\n\t}" if lines else f'\t"{name}":{{}}'
