"""Pulls through the read role: statuses, limits, filters, holding."""

import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from reader_kit import BOTH, READ, TURN_NS, MakeKit, ReaderKit, connected, pull_frame, send_frame
from waiting import wait_until

from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import ffi, lib
from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import RemotingCommand

SUSPEND, SUBSCRIPTION, COMMIT = 2, 4, 1
NOT_FOUND, RETRY = 19, 20
SCAN_S = 4.9
"""A reader looks at all held pulls 5 s after its start, and every 5 s. Its clock counts whole milliseconds."""
TURN_S = TURN_NS / 1e9
OFFSETS = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag")


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    return started(make_kit())


def started(kit: ReaderKit, *roles: str) -> ReaderKit:
    """With a group that reads the topic, and its roles."""
    kit.subscribe(kit.group(b"GROUP"), 1)
    for role in roles or ("write", "dispatch", "read"):
        kit.start(role)
    return kit


def fill(kit: ReaderKit, count: int, *, tags: str = "", body: int = 100, queue: int = 0) -> None:
    """Send `count` messages and wait until they stand in their queue; tags are used in turn."""
    topic = lib.rmq_topic_find(kit.plane, b"TopicA", 6)
    before = kit.queue(topic, queue).max_offset
    with connected(kit) as client:
        for n in range(count):
            tag = f"TAGS\x01{tags[n % len(tags)]}\x02" if tags else ""
            answer = client.ask(send_frame("TopicA", bytes([n % 256]) * body, f"UNIQ_KEY\x01{n}\x02{tag}", queue=queue))
            assert answer.code == 0, answer.remark
    wait_until(lambda: kit.queue(topic, queue).max_offset == before + count, "the queue has all messages")


def bodies(answer: RemotingCommand) -> list[bytes]:
    """Message bodies in a pull's answer."""
    found, at, view = [], 0, ffi.new("struct rmq_record_view *")
    while at < len(answer.body):
        assert lib.rmq_record_parse(answer.body[at:], len(answer.body) - at, 1, view) == lib.RMQ_RECORD_OK
        found.append(answer.body[at + view.body_at : at + view.body_at + view.body_length])
        at += view.total_size
    return found


def numbers(answer: RemotingCommand) -> tuple[int, str | None, int, int, int]:
    """code, status, next, min, max."""
    assert tuple(sorted(answer.ext_fields)) == tuple(sorted(OFFSETS))
    fields = answer.ext_fields
    assert (fields["topicSysFlag"], fields["groupSysFlag"], fields["suggestWhichBrokerId"]) == ("0", "0", "0")
    return (
        answer.code,
        answer.remark,
        int(fields["nextBeginOffset"]),
        int(fields["minOffset"]),
        int(fields["maxOffset"]),
    )


@pytest.mark.parametrize("serialise", BOTH)
def test_statuses(kit: ReaderKit, serialise: SerializeType) -> None:
    with connected(kit) as client:

        def pull(offset: int, **more: object) -> tuple[int, str | None, int, int, int]:
            return numbers(client.ask(pull_frame("TopicA", "GROUP", offset, serialise=serialise, **more)))  # type: ignore[arg-type]

        assert pull(0) == (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        assert pull(5) == (21, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        fill(kit, 5)
        assert pull(0) == (0, "FOUND", 5, 0, 5)
        assert pull(5) == (19, "OFFSET_OVERFLOW_ONE", 5, 0, 5)
        assert pull(6) == (21, "OFFSET_OVERFLOW_BADLY", 5, 0, 5)
        assert pull(-1) == (21, "OFFSET_TOO_SMALL", 0, 0, 5)
        assert pull(0, sys_flag=SUBSCRIPTION, subscription="NoSuchTag") == (20, "NO_MATCHED_MESSAGE", 5, 0, 5)
        assert pull(0, count=2) == (0, "FOUND", 2, 0, 5)
        kit.queue(1, 0).min_offset = 3
        assert pull(1) == (21, "OFFSET_TOO_SMALL", 3, 3, 5)


def test_bodies_come_from_the_log(kit: ReaderKit) -> None:
    fill(kit, 40)
    with connected(kit) as client:
        first = client.ask(pull_frame("TopicA", "GROUP", 0))
        assert numbers(first)[:3] == (0, "FOUND", 32)
        rest = client.ask(pull_frame("TopicA", "GROUP", 32, code=361))
        assert numbers(rest)[:3] == (0, "FOUND", 40)
    assert bodies(first) + bodies(rest) == [bytes([n]) * 100 for n in range(40)]


def test_limits_in_memory_and_on_disk(make_kit: MakeKit) -> None:
    kit = make_kit(pull_memory_bytes_max=1000, pull_disk_count_max=3, memory_window_bytes=3000)
    kit.subscribe(kit.group(b"GROUP"), 1)
    for role in ("write", "dispatch", "read"):
        kit.start(role)
    fill(kit, 30)
    with connected(kit) as client:
        on_disk = client.ask(pull_frame("TopicA", "GROUP", 0))
        in_memory = client.ask(pull_frame("TopicA", "GROUP", 25))
        huge = client.ask(pull_frame("TopicA", "GROUP", 0, count=2_000_000_000))
    size = len(on_disk.body) // 3
    assert (len(bodies(on_disk)), len(bodies(in_memory)), len(bodies(huge))) == (3, 1000 // size, 3)


def test_tag_filters(kit: ReaderKit) -> None:
    topic = lib.rmq_topic_find(kit.plane, b"TopicA", 6)
    kit.subscribe(kit.group(b"TAGGED"), topic, (b"a", b"c"))
    fill(kit, 9, tags="abc")
    with connected(kit) as client:
        tagged = client.ask(pull_frame("TopicA", "TAGGED", 0))
        asked = client.ask(pull_frame("TopicA", "GROUP", 0, sys_flag=SUBSCRIPTION, subscription=" b ||  || x"))
        everything = client.ask(pull_frame("TopicA", "GROUP", 0, sys_flag=SUBSCRIPTION, subscription="*"))
    assert [body[0] for body in bodies(tagged)] == [0, 2, 3, 5, 6, 8]
    assert [body[0] for body in bodies(asked)] == [1, 4, 7]
    assert len(bodies(everything)) == 9
    assert numbers(asked)[2] == 9


def test_pull_over_queue_file_and_segment_borders(make_kit: MakeKit) -> None:
    kit = make_kit(segment_bytes=65536)
    kit.create_segment(65536)
    kit.subscribe(kit.group(b"GROUP"), 1)
    for role in ("write", "dispatch", "read"):
        kit.start(role)
    fill(kit, 350)  # 300 units per queue file
    taken: list[bytes] = []
    with connected(kit) as client:
        while len(taken) < 350:
            answer = client.ask(pull_frame("TopicA", "GROUP", len(taken)))
            assert answer.code == 0, answer.remark
            taken += bodies(answer)
            assert numbers(answer)[2] == len(taken)
    assert taken == [bytes([n % 256]) * 100 for n in range(350)]


def test_removed_log_file_and_missing_queue_file(kit: ReaderKit) -> None:
    fill(kit, 10)
    with connected(kit) as client:
        kit.marks.min_offset = kit.marks.append_offset
        assert numbers(client.ask(pull_frame("TopicA", "GROUP", 0)))[:3] == (20, "MESSAGE_WAS_REMOVING", 10)
        kit.queue(1, 1).max_offset = 700
        assert numbers(client.ask(pull_frame("TopicA", "GROUP", 310, queue=1)))[:3] == (19, "OFFSET_FOUND_NULL", 600)


def test_a_log_file_that_cannot_be_mapped_is_not_stepped_over(make_kit: MakeKit) -> None:
    kit = make_kit(segment_bytes=65536)
    kit.create_segment(65536)
    kit.subscribe(kit.group(b"GROUP"), 1)
    for role in ("write", "dispatch", "read"):
        kit.start(role)
    fill(kit, 350)
    border = next(number for number, (offset, *_) in enumerate(kit.records()) if offset >= 65536)
    path = kit.root / "commitlog" / f"{65536:020d}"
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path)  # ELOOP, like EMFILE not a word about the messages
    with connected(kit) as client:
        at_the_border = client.ask(pull_frame("TopicA", "GROUP", border - 2))
        assert numbers(at_the_border)[:3] == (0, "FOUND", border)
        refused = client.ask(pull_frame("TopicA", "GROUP", border))
        assert (refused.code, "cannot be mapped" in (refused.remark or "")) == (2, True)
        path.unlink()
        path.with_suffix(".away").rename(path)
        assert bodies(client.ask(pull_frame("TopicA", "GROUP", border)))[0] == bytes([border % 256]) * 100


def test_filler_units_are_stepped_over(kit: ReaderKit) -> None:
    fill(kit, 5)
    with (kit.root / "consumequeue" / "TopicA" / "0" / f"{0:020d}").open("r+b") as file:
        for number in (1, 4):
            file.seek(number * 20)
            file.write(struct.pack(">qiq", 0, 0x7FFFFFFF, 0))
    with connected(kit) as client:
        first = client.ask(pull_frame("TopicA", "GROUP", 0))
        assert [body[0] for body in bodies(first)] == [0, 2, 3]
        assert numbers(first)[:3] == (0, "FOUND", 5)
        assert numbers(client.ask(pull_frame("TopicA", "GROUP", 1)))[2] == 5
        assert numbers(client.ask(pull_frame("TopicA", "GROUP", 4)))[:3] == (20, "NO_MATCHED_MESSAGE", 5)


def test_a_pull_over_more_files_than_are_mapped_at_once(make_kit: MakeKit) -> None:
    limits = {"pull_memory_bytes_max": 64 << 20, "pull_memory_count_max": 400, "send_queue_bytes_max": 64 << 20}
    kit = make_kit(segment_bytes=65536, **limits)
    for number in range(1, 302):
        kit.create_segment(number * 65536)
    kit.subscribe(kit.group(b"GROUP"), 1)
    for role in ("write", "dispatch", "read"):
        kit.start(role)
    fill(kit, 300, body=40_000)  # one in each file
    taken: list[bytes] = []
    with connected(kit) as client:
        while len(taken) < 300:
            answer = client.ask(pull_frame("TopicA", "GROUP", len(taken), count=400))
            assert answer.code == 0, answer.remark
            taken += bodies(answer)
            assert numbers(answer)[2] == len(taken)
    assert taken == [bytes([n % 256]) * 40_000 for n in range(300)]


@pytest.mark.parametrize(
    ("group", "fields"),
    [
        ("NOBODY", {}), ("GROUP", {"topic": "Nowhere"}), ("GROUP", {"queueId": "4"}), ("GROUP", {"queueId": "-1"}),
        ("GROUP", {"subVersion": "2"}), ("GROUP", {"queueOffset": "x"}), ("GROUP", {"sysFlag": "8"}), ("IDLE", {}),
        ("GROUP", {"sysFlag": "4", "expressionType": "SQL92", "subscription": "a = 1"}), ("OFF", {}), ("ALONE", {}),
        ("GROUP", {"sysFlag": "4", "subscription": "||"}), ("BROADCAST", {}),
    ],
    ids=str,
)  # fmt: skip
def test_every_doubt_is_left_to_control(kit: ReaderKit, group: str, fields: dict[str, str]) -> None:
    live, enabled, members = lib.RMQ_GROUP_LIVE, lib.RMQ_GROUP_CONSUME_ENABLE, lib.RMQ_GROUP_HAS_MEMBERS
    kit.group(b"IDLE", live | enabled)
    kit.group(b"OFF", live | members)
    kit.group(b"ALONE")
    kit.group(b"BROADCAST", live | enabled | members | lib.RMQ_GROUP_BROADCASTING)
    frame = pull_frame("TopicA", group, 0, **fields)
    with connected(kit) as client:
        client.send(frame)
        taken = kit.take()
        assert taken[1] == frame
        assert client.is_quiet()


def test_vip_port_leaves_pulls_to_control(kit: ReaderKit) -> None:
    with connected(kit, listener=1) as client:
        client.send(pull_frame("TopicA", "GROUP", 0))
        taken = kit.take()
        assert taken[0].listener == 1
        assert client.ask(send_frame("TopicA", b"vip")).code == 0


# --- old messages ------------------------------------------------------------------------------------------------


def helpers() -> set[str]:
    """Threads of the kernel or of the engine that wait for disks in the reader's place. Those of earlier readers may
    end."""
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):
            name = path.read_text()
            found |= {path.parent.name} if name.startswith(("iou-wrk-", "ringmq-disk")) else set()
    return found


def test_messages_beyond_the_memory_window_are_read_by_a_helper(kit: ReaderKit) -> None:
    fill(kit, 10)
    with connected(kit) as client:
        assert len(bodies(client.ask(pull_frame("TopicA", "GROUP", 0)))) == 10
        before = helpers()
        kit.header.settings.memory_window_bytes = 0
        assert bodies(client.ask(pull_frame("TopicA", "GROUP", 0))) == [bytes([n]) * 100 for n in range(8)]
        assert helpers() - before


def test_old_and_new_messages_come_in_the_order_of_their_pulls(kit: ReaderKit) -> None:
    """Four queues of messages in turn, so that an answer is many pieces; the older half is beyond the memory window."""
    for _ in range(30):
        for queue in range(4):
            fill(kit, 1, body=1000 + queue, queue=queue)
    kit.header.settings.memory_window_bytes = kit.marks.append_offset // 2
    offsets = [0, 29, 3, 28, 12, 15, 1, 20] * 8
    with connected(kit) as client, connected(kit) as gone, connected(kit) as producer:
        frames = [pull_frame("TopicA", "GROUP", at, queue=n % 4, opaque=n) for n, at in enumerate(offsets)]
        gone.send(*frames)
        gone.close()  # with reads under way
        client.send(*frames[:-1], send_frame("TopicA", b"x", queue=1, opaque=-1), frames[-1])
        answers = [client.answer() for _ in range(len(frames) + 1)]
        assert producer.ask(send_frame("TopicA", b"x")).code == 0
    pulls = [answer for answer in answers if answer.opaque >= 0]
    assert [answer.opaque for answer in pulls] == list(range(len(frames)))
    for n, answer in enumerate(pulls):
        found = bodies(answer)
        assert answer.code == 0 and int(answer.ext_fields["nextBeginOffset"]) == offsets[n] + len(found)
        assert {body for body in found if len(body) > 1} == {bytes(1000 + n % 4)}
        if offsets[n] < 10:
            assert len(found) == 8


# --- holding ---------------------------------------------------------------------------------------------------


def parked(kit: ReaderKit, slot: int = 0) -> int:
    """The flag byte that dispatch reads."""
    return int(ffi.cast("uint8_t *", kit.plane.base + kit.header.ports.port[0].parked_flags_at)[slot])


def test_held_pull_is_woken_by_a_message(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND))
        wait_until(lambda: parked(kit), "the pull is held")
        assert client.is_quiet()
        fill(kit, 1)
        assert numbers(client.answer()) == (0, "FOUND", 1, 0, 1)
    wait_until(lambda: not parked(kit), "the flag is down")


def test_held_pull_for_another_tag_stays_until_the_scan(make_kit: MakeKit) -> None:
    began = time.monotonic()
    kit = started(make_kit())
    with connected(kit) as client:
        frame = pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND | SUBSCRIPTION, subscription="z")
        client.send(frame)
        wait_until(lambda: parked(kit), "the pull is held")
        fill(kit, 3, tags="a")
        if not client.is_quiet(0.3):
            assert time.monotonic() - began > SCAN_S, "only the scan answers it"
            assert numbers(client.answer())[:3] == (20, "NO_MATCHED_MESSAGE", 3)
            client.send(frame)
        fill(kit, 1, tags="z")
        assert numbers(client.answer())[:3] == (0, "FOUND", 4)
        client.send(pull_frame("TopicA", "GROUP", 4, sys_flag=SUSPEND | SUBSCRIPTION, subscription="z"))
        wait_until(lambda: parked(kit), "the pull is held")
        fill(kit, 1, tags="a")
        assert numbers(client.answer())[:3] == (20, "NO_MATCHED_MESSAGE", 5), "long before its own time"


def test_hold_ends_in_time(kit: ReaderKit) -> None:
    with connected(kit) as client:
        began, turns = time.monotonic(), kit.header.roles[READ].progress
        answer = client.ask(pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND, suspend_ms=300))
        assert time.monotonic() - began > 0.25
        assert kit.header.roles[READ].progress - turns < 3 / TURN_S, "turns of a reader that looks for 3 s"
        assert numbers(answer) == (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
    assert parked(kit) == 0


def test_long_polling_may_be_switched_while_pulls_are_held(make_kit: MakeKit) -> None:
    began = time.monotonic()
    kit = started(make_kit())
    settings = kit.header.settings
    with connected(kit) as client:
        client.send(pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND))
        wait_until(lambda: parked(kit), "the pull is held")
        settings.short_polling_ms, settings.long_polling_enable = 200, 0
        assert numbers(client.answer())[:2] == (19, "NO_MESSAGE_IN_QUEUE"), "long before its own time"

        settings.short_polling_ms = 600_000
        client.send(pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND))
        wait_until(lambda: parked(kit), "the pull is held")
        fill(kit, 1)
        assert parked(kit) or time.monotonic() - began > SCAN_S, "nothing but the scan ends short polling early"
        assert numbers(client.answer())[:3] == (0, "FOUND", 1)

        settings.short_polling_ms, settings.long_polling_enable = 1000, 1
        client.send(pull_frame("TopicA", "GROUP", 1, sys_flag=SUSPEND))
        wait_until(lambda: parked(kit), "the pull is held")
        assert client.is_quiet(1.5), "longer than short polling"
        fill(kit, 1)
        assert numbers(client.answer())[:3] == (0, "FOUND", 2)


@pytest.mark.parametrize("known", [False, True])
def test_held_pulls_are_answered_when_the_broker_yields(kit: ReaderKit, known: bool) -> None:
    """Messages come to another master from then on. A pull that comes later is held as on a slave."""
    with connected(kit) as client:
        for queue in (0, 1):
            client.send(pull_frame("TopicA", "GROUP", 0, queue=queue, sys_flag=SUSPEND, suspend_ms=3_600_000))
        wait_until(lambda: parked(kit, 0) and parked(kit, 1), "both are held")
        assert client.is_quiet()
        kit.header.replication.master_known = known
        kit.marks.tenure = Tenure(TenureState.YIELDING, epoch=2).word
        lib.rmq_role_wake(kit.plane, READ)
        assert [client.answer().code for _ in range(2)] == [RETRY if known else NOT_FOUND] * 2
        assert not parked(kit, 0) and not parked(kit, 1)
        if not known:
            client.send(pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND, suspend_ms=3_600_000))
            wait_until(lambda: parked(kit, 0), "the pull is held")
            assert client.is_quiet(1.5), "longer than a tick"


def test_one_connection_cannot_take_every_place_for_held_pulls(kit: ReaderKit) -> None:
    """The rest of its pulls is answered at once; other consumers go on holding."""
    limit = 16384
    frame = pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND, suspend_ms=3_600_000)
    with connected(kit) as greedy, connected(kit) as other:
        for _ in range(limit // 1024):
            greedy.send(*[frame] * 1024)
        greedy.send(frame)
        assert numbers(greedy.answer())[:2] == (19, "NO_MESSAGE_IN_QUEUE")
        assert greedy.is_quiet()
        other.send(pull_frame("TopicA", "GROUP", 0, queue=1, sys_flag=SUSPEND, suspend_ms=3_600_000))
        wait_until(lambda: parked(kit, 1), "the other's pull is held")
        assert other.is_quiet()


def test_closing_forgets_held_pulls(kit: ReaderKit) -> None:
    with connected(kit) as other:
        with connected(kit) as client:
            client.send(*(pull_frame("TopicA", "GROUP", 0, queue=n % 4, sys_flag=SUSPEND, opaque=n) for n in range(20)))
            wait_until(lambda: all(parked(kit, slot) for slot in range(4)), "all are held")
            other.send(pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND))
        wait_until(lambda: not any(parked(kit, slot) for slot in (1, 2, 3)), "those of the closed one are gone")
        fill(kit, 1)
        assert other.answer().code == 0
    wait_until(lambda: not parked(kit), "the flag is down")


def test_subscription_that_goes_while_holding_is_controls_case(kit: ReaderKit) -> None:
    frame = pull_frame("TopicA", "GROUP", 0, sys_flag=SUSPEND)
    with connected(kit) as client:
        client.send(frame)
        wait_until(lambda: parked(kit), "the pull is held")
        lib.rmq_group_set(kit.plane, lib.rmq_group_find(kit.plane, b"GROUP", 5), 0)
        fill(kit, 1)
        taken = kit.take()
        assert taken[1] == frame


def test_commit_offset_travels_by_ring(kit: ReaderKit) -> None:
    group = lib.rmq_group_find(kit.plane, b"GROUP", 5)
    with connected(kit) as client:
        client.ask(pull_frame("TopicA", "GROUP", 0, sys_flag=COMMIT, commitOffset="17"))
        client.ask(pull_frame("TopicA", "GROUP", 0, sys_flag=0, commitOffset="99"))
        client.ask(pull_frame("TopicA", "GROUP", 0, queue=1, sys_flag=COMMIT, commitOffset="3"))
        assert lib.rmq_offset_drain(kit.plane) == 2
        assert [lib.rmq_offset_get(kit.plane, group, slot) for slot in (0, 1, 2)] == [17, 3, -1]
        client.ask(pull_frame("TopicA", "GROUP", 0, sys_flag=COMMIT, commitOffset="17"))
        assert lib.rmq_offset_drain(kit.plane) == 0
        for n in range(200):  # more than the ring holds: the rest is dropped, nothing hangs
            client.ask(pull_frame("TopicA", "GROUP", 0, sys_flag=COMMIT, commitOffset=str(n)))
        assert lib.rmq_offset_drain(kit.plane) == 64


def test_pull_memory_is_bounded_by_the_confirm_offset(make_kit: MakeKit) -> None:
    kit = started(make_kit(), "write", "read")
    with connected(kit) as client:
        for n in range(4):
            assert client.ask(send_frame("TopicA", b"x", f"UNIQ_KEY\x01{n}\x02")).code == 0
    with kit.dispatcher() as dispatch:
        dispatch()
    kit.marks.confirm_policy = lib.RMQ_CONFIRM_FLUSHED
    kit.marks.flushed_offset = kit.marks.dispatched_offset = kit.records()[2][0]  # the third record is not durable yet
    with connected(kit) as client:
        assert len(bodies(client.ask(pull_frame("TopicA", "GROUP", 0)))) == 2
        assert kit.header.roles[READ].state == 2


def test_looks_are_counted_by_what_they_found(kit: ReaderKit) -> None:
    """A reader publishes its counters every 100 ms."""

    def counts() -> tuple[int, int]:
        return kit.counter(lib.RMQ_READ_PULLS_FOUND), kit.counter(lib.RMQ_READ_PULLS_MISSED)

    fill(kit, 2)
    with connected(kit) as client:
        assert client.ask(pull_frame("TopicA", "GROUP", 0)).code == 0
        assert client.ask(pull_frame("TopicA", "GROUP", 2)).code == NOT_FOUND
        wait_until(lambda: counts() == (1, 1), "both are counted", state=counts)
        client.send(pull_frame("TopicA", "GROUP", 2, sys_flag=SUSPEND))
        wait_until(lambda: counts() == (1, 2), "the held pull has found none", state=counts)
        fill(kit, 1)
        assert client.answer().code == 0
    wait_until(lambda: counts() == (2, 2), "it finds what has come", state=counts)
    assert 0 < kit.counter(lib.RMQ_READ_PULL_NS_MAX) < 60e9
