"""Tables, inbox and verdicts of the plane, and what outsiders see of it."""

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.ipc.admission import Rule, RuleKind, publish_rules
from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.asks import Inbox
from ringmq.ipc.plane import Capacity, Plane, PlaneFullError, topic_config_word
from ringmq.ipc.segment import plane_name, remove_segments
from ringmq.ipc.watermark import read_watermarks, store_is_locked
from ringmq.native import ffi, lib
from ringmq.store.store_lock import StoreLock

SMALL = Capacity(
    topics=8, queues=16, groups=8, subscriptions=8, offsets=8, parked_slots=64, commit_slots=8, arrived_slots=8,
    answerers=(AnswererPlan(lib.RMQ_ROLE_CONTROL, frozenset({lib.RMQ_ROLE_READ, 9}), 4096, 4096),),
)  # fmt: skip
NO_CLAIM = 2**64 - 1


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    name = plane_name(tmp_path)
    yield Plane.create(name, SMALL, tmp_path.stat(), 7)
    remove_segments(name)


def put(plane: Plane, payload: bytes, role: int = 9) -> int:
    head = ffi.new("struct rmq_inbox_record *")
    head.type, head.role, head.pending = lib.RMQ_INBOX_COLD_FRAME, role, 5
    return int(lib.rmq_inbox_put(plane.struct, 0, head, payload, len(payload), ffi.NULL))


def test_a_second_process_finds_what_control_published(plane: Plane) -> None:
    topic = plane.topic_add("TopicA", topic_config_word(6, 4, 4, lib.RMQ_TOPIC_LIVE))
    plane.watermarks.append_offset = 5000
    slot = plane.queue_add(topic, 3, 10, 20, 30)
    new = plane.queue_add(topic, 5)
    group = plane.group_add("G", lib.RMQ_GROUP_LIVE)
    plane.subscription_set(group, topic, lib.RMQ_SUBSCRIPTION_TAGS, 99, [1, -5])
    other = Plane.open(plane.name)
    assert other.topic_find("TopicA") == topic
    assert other.topic_find("TopicB") is None
    assert other.queue_find(topic, 3) == slot
    assert other.queue_find(topic, 4) is None
    assert (other.queue(slot).min_offset, other.queue(slot).max_offset, other.queue(slot).replay_from) == (10, 20, 30)
    assert other.queue(new).replay_from == 5000, "a new queue has nothing in the log yet"
    assert other.group_find("G") == group
    copy = ffi.new("struct rmq_subscription_copy *")
    lib.rmq_subscription_get(other.struct, group, topic, copy)
    assert (copy.kind, copy.sub_version, list(copy.tags[0:2])) == (lib.RMQ_SUBSCRIPTION_TAGS, 99, [1, -5])


def test_a_plane_of_other_sources_is_refused(plane: Plane) -> None:
    assert plane.header.version not in (0, 1), "the build reckons it"
    plane.header.version += 1
    with pytest.raises(ValueError, match=f"{plane.name} was made by another build"):
        Plane.open(plane.name)


def test_queues_are_found_wherever_they_lie(plane: Plane) -> None:
    """Behind their topic's first one mostly; also in front of it, apart from it, and not where another topic's lie."""
    a, b = (plane.topic_add(name, topic_config_word(6, 4, 4, lib.RMQ_TOPIC_LIVE)) for name in "AB")
    order = [(a, 2), (a, 0), (a, 1), (b, 0), (a, 3), (b, 1), (b, 2)]
    slots = {queue: plane.queue_add(*queue) for queue in order}
    assert list(slots.values()) == list(range(len(order)))
    assert {queue: plane.queue_find(*queue) for queue in order} == slots
    assert [plane.queue_find(*queue) for queue in [(a, 4), (b, 3), (b, 4), (a, 0xFFFFFFFF)]] == [None] * 4


def test_a_deleted_topic_is_gone_and_its_id_is_not_used_again(plane: Plane) -> None:
    first = plane.topic_add("T", topic_config_word(6, 1, 1, lib.RMQ_TOPIC_LIVE))
    plane.topic_set(first, 0)
    assert plane.topic_find("T") is None
    second = plane.topic_add("T", topic_config_word(6, 1, 1, lib.RMQ_TOPIC_LIVE))
    assert second != first
    assert plane.topic_find("T") == second


def test_a_full_table_says_which(plane: Plane) -> None:
    for number in range(SMALL.topics):
        plane.topic_add(f"T{number}", topic_config_word(6, 1, 1, lib.RMQ_TOPIC_LIVE))
    with pytest.raises(PlaneFullError, match="topics: the table is full \\(8 entries\\)"):
        plane.topic_add("one-more", 0)
    for number in range(SMALL.subscriptions):
        plane.subscription_set(number, 1, lib.RMQ_SUBSCRIPTION_ALL, 1, [])
    with pytest.raises(PlaneFullError, match="subscriptions: the table is full \\(8 entries\\)"):
        plane.subscription_set(SMALL.subscriptions, 1, lib.RMQ_SUBSCRIPTION_ALL, 1, [])
    plane.subscription_set(0, 1, lib.RMQ_SUBSCRIPTION_NONE, 2, [])  # who has a place changes in it
    with pytest.raises(ValueError, match="subscription of group 0: 57 tags are over 56"):
        plane.subscription_set(0, 1, lib.RMQ_SUBSCRIPTION_TAGS, 3, list(range(57)))


def subscription(plane: Plane, group: int, topic: int) -> tuple[int, int]:
    """(kind, subVersion) as a reader sees it."""
    copy = ffi.new("struct rmq_subscription_copy *")
    lib.rmq_subscription_get(plane.struct, group, topic, copy)
    return int(copy.kind), int(copy.sub_version)


@pytest.mark.parametrize("seed", range(50))
def test_entries_of_subscriptions_are_used_again(plane: Plane, seed: int) -> None:
    """A table of eight entries beside a dictionary: every pair of six groups and six topics after each step."""
    chance = random.Random(seed)
    entries: dict[tuple[int, int], tuple[int, int]] = {}
    nothing = (lib.RMQ_SUBSCRIPTION_NONE, 0)
    for version in range(1, 200):
        pair = chance.randrange(6), chance.randrange(6)
        if chance.random() < 0.02:
            plane.subscriptions_clear()
            entries.clear()
        elif pair in entries or len(entries) < SMALL.subscriptions:
            entries[pair] = chance.choice([(lib.RMQ_SUBSCRIPTION_ALL, version), nothing])
            plane.subscription_set(*pair, *entries[pair], [])
        else:
            old = chance.choice(list(entries))
            plane.subscription_replace(old, pair)
            del entries[old]
            entries[pair] = nothing
        for group in range(6):
            for topic in range(6):
                assert subscription(plane, group, topic) == entries.get((group, topic), nothing), version


def test_an_entry_is_given_away_once_and_to_nobody_that_has_one(plane: Plane) -> None:
    plane.subscription_set(1, 1, lib.RMQ_SUBSCRIPTION_NONE, 0, [])
    plane.subscription_set(2, 2, lib.RMQ_SUBSCRIPTION_ALL, 5, [])
    for old, new in (((3, 3), (4, 4)), ((1, 1), (2, 2))):
        with pytest.raises(KeyError):
            plane.subscription_replace(old, new)
    assert subscription(plane, 2, 2) == (lib.RMQ_SUBSCRIPTION_ALL, 5)


def test_a_reader_never_sees_the_subscription_of_another_pair(plane: Plane) -> None:
    """A thread reads (the C call runs without the interpreter's lock) while entries change their pairs."""
    pairs = [(group, topic) for group in range(1, 6) for topic in range(1, 6)]
    for pair in pairs[: SMALL.subscriptions]:
        plane.subscription_set(*pair, lib.RMQ_SUBSCRIPTION_ALL, pair[0] * 100 + pair[1], [])
    ended = threading.Event()
    seen: set[tuple[tuple[int, int], int]] = set()

    def read() -> None:
        while not ended.is_set():
            for pair in pairs:
                kind, version = subscription(plane, *pair)
                if kind != lib.RMQ_SUBSCRIPTION_NONE:
                    seen.add((pair, version))

    reader = threading.Thread(target=read)
    reader.start()
    held = pairs[: SMALL.subscriptions]
    try:
        for number in range(20_000):
            old, new = held.pop(0), pairs[(number + SMALL.subscriptions) % len(pairs)]
            plane.subscription_replace(old, new)
            plane.subscription_set(*new, lib.RMQ_SUBSCRIPTION_ALL, new[0] * 100 + new[1], [])
            held.append(new)
    finally:
        ended.set()
        reader.join()
    assert seen and all(version == pair[0] * 100 + pair[1] for pair, version in seen)


def test_control_reads_the_rules_that_it_has_published(plane: Plane) -> None:
    assert plane.admission_rules() == ()
    rules = (
        Rule(RuleKind.REFUSE, b"TIMER_DELAY_SEC", code=1, remark="none"),
        Rule(RuleKind.REDIRECT, transaction=4, topic_id=1),
    )
    publish_rules(plane.struct, rules)
    assert plane.admission_rules() == rules


def test_offsets_of_pulls_are_drained_in_order(plane: Plane) -> None:
    ring = plane.header.ports.port[0].commit
    slots = ffi.cast("struct rmq_offset_commit *", plane.struct.base + ring.slots_at)
    for position, offset in enumerate([5, 9, 7]):
        slots[position].group_id, slots[position].queue_slot, slots[position].offset = 1, 2, offset
    ring.head = 3
    assert plane.offset_get(1, 2) == -1
    assert plane.offset_drain() == 3
    assert plane.offset_get(1, 2) == 7
    assert (plane.offset_keys(0), plane.offset_keys(1)) == ([(1, 2)], [])


def test_commits_that_find_no_room_do_not_come_again(plane: Plane) -> None:
    for slot in range(SMALL.offsets):
        plane.offset_put(1, slot, 1)
    ring = plane.header.ports.port[0].commit
    slots = ffi.cast("struct rmq_offset_commit *", plane.struct.base + ring.slots_at)
    for position, (group, offset) in enumerate([(1, 5), (2, 5), (1, 6)]):
        slots[position].group_id, slots[position].queue_slot, slots[position].offset = group, 0, offset
    ring.head = 3
    with pytest.raises(PlaneFullError, match="consumer offsets: the table is full"):
        plane.offset_drain()
    plane.offset_put(1, 0, 2)  # reset by an operator
    assert plane.offset_drain() == 0
    assert plane.offset_get(1, 0) == 2


def test_inbox_keeps_order_over_many_turns_of_the_ring(plane: Plane) -> None:
    for number in range(200):
        payload = bytes([number]) * (number * 13 % 700)
        assert put(plane, payload) == 0
        record = Inbox(plane).take()
        assert record is not None
        assert (record.payload, record.pending, record.role) == (payload, 5, 9)
    assert Inbox(plane).take() is None


def test_a_full_inbox_refuses_and_recovers(plane: Plane) -> None:
    taken = 0
    while put(plane, b"x" * 400) == 0:
        taken += 1
    assert 5 <= taken <= 4096 // 456
    assert Inbox(plane).take() is not None
    assert put(plane, b"y") == 0


def claim(plane: Plane, role: int, marked: bool, size: int = 104) -> None:
    """What a writer leaves that dies after its claim, before (marked=False) or after it wrote the length."""
    ring = plane.header.asks.answerer[0].inbox
    if marked:
        at = plane.struct.base + ring.slots_at + ring.head % ring.capacity
        ffi.cast("int32_t *", at)[0] = -size
    plane.role(role).claim_position = ring.head
    ring.head += size


@pytest.mark.parametrize("marked", [True, False])
def test_an_orphaned_claim_is_unblocked_only_after_its_writer_is_known_dead(plane: Plane, marked: bool) -> None:
    claim(plane, 8, marked)
    assert put(plane, b"behind") == 0
    assert Inbox(plane).take() is None
    assert not Inbox(plane).unblock(), "the writer may be slow"
    plane.role(8).claim_position = NO_CLAIM  # the supervisor buries it
    assert Inbox(plane).unblock()
    record = Inbox(plane).take()
    assert record is not None and record.payload == b"behind"


def test_unblock_stops_where_somebody_alive_holds_a_claim(plane: Plane) -> None:
    claim(plane, 8, marked=False)
    claim(plane, 9, marked=False)
    plane.role(8).claim_position = NO_CLAIM
    assert Inbox(plane).unblock()
    assert Inbox(plane).take() is None
    assert plane.header.asks.answerer[0].inbox.tail == 104, "only the dead one's claim is gone"
    assert not Inbox(plane).unblock()


@pytest.mark.parametrize("cleared", [0, 8, 200, 392])
def test_a_reader_that_dies_while_it_clears_a_record_leaves_a_pad(plane: Plane, cleared: int) -> None:
    """Left-over payload must never be read as the length of a record."""
    assert put(plane, b"\x7f" * 344) == put(plane, b"behind") == 0
    assert Inbox(plane).take() is not None
    at = plane.struct.base + plane.header.asks.answerer[0].inbox.slots_at
    ffi.cast("struct rmq_inbox_record *", at).type = lib.RMQ_INBOX_PAD
    ffi.memmove(at + 8, bytes(cleared), cleared)
    record = Inbox(plane).take()  # the successor, which takes what was not given up once more
    assert record is not None and record.payload == b"behind"


def test_verdicts_wrap_and_refuse_when_full(plane: Plane) -> None:
    count = 0
    while Inbox(plane).answer(lib.RMQ_ROLE_READ, lib.RMQ_VERDICT_SEND, (1, 2), 3, 4, b"z" * 500):
        count += 1
    assert count == 4096 // 536
    assert len(b"z" * 5000) > Inbox(plane).chunk_bytes
    with pytest.raises(ValueError, match="an answer of 5000 bytes to role 8"):
        Inbox(plane).answer(lib.RMQ_ROLE_READ, lib.RMQ_VERDICT_SEND, (1, 2), 3, 4, b"z" * 5000)


def test_outsiders_trust_the_page_only_under_a_lock(tmp_path: Path, plane: Plane) -> None:
    import fcntl
    import struct

    plane.watermarks.append_offset = 500
    plane.watermarks.flushed_offset = 300
    plane.watermarks.confirm_policy = lib.RMQ_CONFIRM_FLUSHED
    plane.publish_watermarks()
    assert not read_watermarks(tmp_path).live
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    assert not read_watermarks(tmp_path).live
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))
    seen = read_watermarks(tmp_path)
    assert (seen.live, seen.confirm_offset, seen.append_offset, seen.start_id) == (True, 300, 500, 7)
    os.close(descriptor)
    assert not read_watermarks(tmp_path).live


@pytest.mark.parametrize("limit", [0, 200, 300, 400, 2**64 - 1])
@pytest.mark.parametrize("policy", range(4))
@pytest.mark.parametrize("dispatched", [0, 250])
def test_outsiders_reckon_the_confirm_offset_as_workers_do(
    tmp_path: Path, plane: Plane, dispatched: int, policy: int, limit: int
) -> None:
    marks = plane.watermarks
    marks.append_offset, marks.flushed_offset, marks.dispatched_offset = 500, 300, dispatched
    marks.confirm_policy, marks.confirm_limit = policy, limit
    plane.publish_watermarks()
    with contextlib.closing(StoreLock(tmp_path)):
        assert read_watermarks(tmp_path).confirm_offset == plane.confirm_offset()
    local = 300 if policy & lib.RMQ_CONFIRM_FLUSHED else 500
    bound = min(local, limit) if policy & lib.RMQ_CONFIRM_LIMITED else local
    assert plane.confirm_offset() == max(bound, dispatched)


def test_a_page_left_behind_is_not_the_stock_broker_s(tmp_path: Path, plane: Plane) -> None:
    """Java locks for the process, which tells a stock owner from ours."""
    plane.publish_watermarks()
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'wb'); fcntl.lockf(file, fcntl.LOCK_EX, 1); "
        "print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None and owner.stdout.readline()
        assert store_is_locked(tmp_path)
        assert not read_watermarks(tmp_path).live
        owner.communicate(b"\n")
    assert not store_is_locked(tmp_path)
