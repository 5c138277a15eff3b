"""Pulls with SQL92 conditions through the read role."""

import os
import struct
import subprocess
from pathlib import Path

import pytest
from plane_kit import filter_put
from reader_kit import BOTH, MakeKit, ReaderKit, connected, pull_frame, send_frame
from waiting import wait_until

from ringmq.filters.compiler import compile_filter
from ringmq.native import lib
from ringmq.remoting.codes import SerializeType
from tests.native.test_reader_pull import bodies, numbers

SUSPEND, SUBSCRIPTION = 2, 4


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    return started(make_kit())


def started(kit: ReaderKit) -> ReaderKit:
    kit.header.settings.property_filter_enable = 1
    kit.subscribe(kit.group(b"GROUP"), 1)
    for role in ("write", "dispatch", "read"):
        kit.start(role)
    return kit


def place(kit: ReaderKit, expression: str, slot: int = 0) -> int:
    """The version of an expression's program, which control publishes."""
    version = filter_put(kit, slot, expression.encode(), compile_filter(expression).encode())
    assert version
    return version


def subscribe(kit: ReaderKit, group: bytes, topic: int, slot: int, version: int) -> None:
    group_id = lib.rmq_group_find(kit.plane, group, len(group))
    if group_id == lib.RMQ_NONE:
        group_id = kit.group(group)
    words = [slot, version]
    assert lib.rmq_subscription_set(kit.plane, group_id, topic, lib.RMQ_SUBSCRIPTION_FILTER, 1, words, 2) == 0


def send(kit: ReaderKit, *properties: str, topic: str = "TopicA", body: int = 100) -> None:
    """Send messages, numbered by their bodies, and wait until they stand in queue 0."""
    topic_id = lib.rmq_topic_find(kit.plane, topic.encode(), len(topic))
    before = kit.queue(topic_id, 0).max_offset
    with connected(kit) as client:
        for number, text in enumerate(properties):
            frame = send_frame(topic, bytes([(before + number) % 256]) * body, f"UNIQ_KEY\x01{number}\x02{text}")
            answer = client.ask(frame)
            assert answer.code == 0, answer.remark
    wait_until(lambda: kit.queue(topic_id, 0).max_offset == before + len(properties), "the queue has all messages")


def amounts(*values: object) -> list[str]:
    return [f"amount\x01{value}\x02" for value in values]


def sql(group: str, offset: int, expression: str, flags: int = SUBSCRIPTION, **more: object) -> bytes:
    """A pull that brings its expression."""
    fields = {"expressionType": "SQL92", **more}
    return pull_frame("TopicA", group, offset, sys_flag=flags, subscription=expression, **fields)  # type: ignore[arg-type]


def escaped(frame: bytes) -> bytes:
    """The frame with < and > as Go's JSON writes them."""
    length = struct.unpack(">i", frame[4:8])[0] & 0xFFFFFF
    head = frame[8 : 8 + length].replace(b"<", b"\\u003c").replace(b">", b"\\u003e")
    rest = struct.pack(">i", len(head)) + head + frame[8 + length :]
    return struct.pack(">i", len(rest)) + rest


@pytest.mark.parametrize("serialise", BOTH)
def test_a_subscription_filters(kit: ReaderKit, serialise: SerializeType) -> None:
    subscribe(kit, b"SQL", 1, 3, place(kit, "amount BETWEEN 3 AND 5 OR amount IS NULL", 3))
    send(kit, *amounts(*range(9)), "", *amounts("x"))
    with connected(kit) as client:
        answer = client.ask(pull_frame("TopicA", "SQL", 0, serialise=serialise))
        assert [body[0] for body in bodies(answer)] == [3, 4, 5, 9]
        assert numbers(answer) == (0, "FOUND", 11, 0, 11)
        assert numbers(client.ask(pull_frame("TopicA", "SQL", 10))) == (20, "NO_MATCHED_MESSAGE", 11, 0, 11)
        few = client.ask(pull_frame("TopicA", "SQL", 0, count=2))
        assert ([body[0] for body in bodies(few)], numbers(few)[2]) == ([3, 4], 5)
    wait_until(lambda: kit.counter(lib.RMQ_READ_FILTERED) == 7 + 1 + 3, "what was left out is counted")
    assert kit.counter(lib.RMQ_READ_COLD) == kit.counter(lib.RMQ_READ_FILTER_LIMITED) == 0


@pytest.mark.parametrize("serialise", BOTH)
def test_a_pull_brings_its_expression(kit: ReaderKit, serialise: SerializeType) -> None:
    place(kit, "amount > 6 AND amount <> '8'", 1000)
    send(kit, *amounts(*range(9)))
    frame = sql("GROUP", 0, "amount > 6 AND amount <> '8'", serialise=serialise)
    with connected(kit) as client:
        assert [body[0] for body in bodies(client.ask(frame))] == [7]
        if serialise == SerializeType.JSON:
            assert escaped(frame) != frame
            assert [body[0] for body in bodies(client.ask(escaped(frame)))] == [7]


def is_cold(kit: ReaderKit, frame: bytes) -> bool:
    """True if control is asked."""
    with connected(kit) as client:
        client.send(frame)
        while (taken := kit.take())[1] != frame:  # closed connections of earlier frames
            pass
        record = taken[0]
        kit.verdict(record, lib.RMQ_VERDICT_CLOSE)
        return client.is_closed()


def test_every_doubt_is_left_to_control(kit: ReaderKit) -> None:
    version = place(kit, "a = 1")
    subscribe(kit, b"SQL", 1, 0, version)
    with connected(kit) as client:
        assert client.ask(pull_frame("TopicA", "SQL", 0)).code == 19
        assert client.ask(sql("GROUP", 0, "a = 1")).code == 19
    assert is_cold(kit, sql("GROUP", 0, "a = 2"))
    assert is_cold(kit, sql("GROUP", 0, "a = 1 "))
    assert is_cold(kit, sql("GROUP", 0, "a = '" + "x" * 9000 + "'"))
    assert is_cold(kit, escaped(sql("GROUP", 0, "a > '" + "<" * 9000 + "'")))
    assert is_cold(kit, sql("GROUP", 0, "a = 1", expressionType="XPATH"))
    assert is_cold(kit, pull_frame("TopicA", "SQL", 0, subVersion="2"))
    kit.header.settings.property_filter_enable = 0
    assert is_cold(kit, pull_frame("TopicA", "SQL", 0)) and is_cold(kit, sql("GROUP", 0, "a = 1"))
    kit.header.settings.property_filter_enable = 1
    subscribe(kit, b"SQL", 1, 0, version + 2)
    assert is_cold(kit, pull_frame("TopicA", "SQL", 0)), "the slot has another program"
    subscribe(kit, b"SQL", 1, 5000, 1)
    assert is_cold(kit, pull_frame("TopicA", "SQL", 0)), "no such slot"
    assert filter_put(kit, 9, b"unsound", b"\xff" * 100) == 1
    assert is_cold(kit, sql("GROUP", 0, "unsound"))


def test_a_program_is_copied_again_when_its_slot_has_another(kit: ReaderKit) -> None:
    send(kit, *amounts(1, 2))
    with connected(kit) as client:
        for value in (1, 2, 1):
            place(kit, f"amount = {value}")
            place(kit, f"amount = {3 - value}", 256)  # has the same place among the worker's copies
            assert [body[0] for body in bodies(client.ask(sql("GROUP", 0, f"amount = {value}")))] == [value - 1]
            assert [body[0] for body in bodies(client.ask(sql("GROUP", 0, f"amount = {3 - value}")))] == [2 - value]


def test_a_pull_that_costs_too_much_ends_early(kit: ReaderKit) -> None:
    """A search in long values: the pull ends after some of them, and the next one goes on."""
    searched = " OR ".join(f"amount CONTAINS 'z{number}'" for number in range(20))
    subscribe(kit, b"SQL", 1, 0, place(kit, searched))
    send(kit, *amounts(*["y" * 20_000] * 29, "z7"))
    with connected(kit) as client:
        offset, pulls = 0, 0
        while not (found := bodies(answer := client.ask(pull_frame("TopicA", "SQL", offset)))):
            assert numbers(answer)[1] == "NO_MATCHED_MESSAGE"
            assert offset < numbers(answer)[2] <= offset + 6
            offset, pulls = numbers(answer)[2], pulls + 1
    assert [body[0] for body in found] == [29] and pulls >= 4
    wait_until(lambda: kit.counter(lib.RMQ_READ_FILTER_LIMITED) == pulls, "such pulls are counted")


def test_the_scan_of_units_is_bounded(kit: ReaderKit) -> None:
    subscribe(kit, b"SQL", 1, 0, place(kit, "amount = 1"))
    send(kit, *amounts(*[2] * 900))
    with connected(kit) as client:
        assert numbers(client.ask(pull_frame("TopicA", "SQL", 0)))[:3] == (20, "NO_MATCHED_MESSAGE", 300), (
            "a queue file"
        )
        assert numbers(client.ask(pull_frame("TopicA", "SQL", 300)))[2] == 600


def test_a_held_pull_waits_for_a_match(kit: ReaderKit) -> None:
    subscribe(kit, b"SQL", 1, 0, place(kit, "amount = 1"))
    with connected(kit) as client:
        client.send(pull_frame("TopicA", "SQL", 0, sys_flag=SUSPEND))
        wait_until(lambda: kit.counter(lib.RMQ_READ_PARKED) == 1, "the pull is held")
        send(kit, *amounts(2, 3))
        assert client.is_quiet(0.3)
        send(kit, *amounts(1))
        answer = client.answer()
        assert ([body[0] for body in bodies(answer)], numbers(answer)[2]) == ([2], 3)


def test_retry_topics_are_filtered_by_their_own_subscription_or_the_original_one(kit: ReaderKit) -> None:
    retry = kit.wide_topic(b"%RETRY%SQL", 1)
    subscribe(kit, b"SQL", 1, 0, place(kit, "amount = 1"))
    subscribe(kit, b"SQL", retry, 1, place(kit, "amount = 2", 1))
    other = "RETRY_TOPIC\x01Elsewhere\x02"
    texts = [f"RETRY_TOPIC\x01TopicA\x02amount\x01{value}\x02" for value in (1, 2)]
    send(kit, *texts, other + "amount\x015\x02", "amount\x016\x02", topic="%RETRY%SQL")
    with connected(kit) as client:
        assert [body[0] for body in bodies(client.ask(pull_frame("%RETRY%SQL", "SQL", 0)))] == [1]
        kit.header.settings.filter_support_retry = 1
        assert [body[0] for body in bodies(client.ask(pull_frame("%RETRY%SQL", "SQL", 0)))] == [0, 2, 3]


def test_records_on_disk_hold_their_pull_not_the_reader(make_kit: MakeKit) -> None:
    kit = make_kit(segment_bytes=1 << 20, memory_window_bytes=0)
    kit.create_segment(1 << 20)
    started(kit)
    subscribe(kit, b"SQL", 1, 0, place(kit, "amount >= 0"))
    send(kit, *amounts(*range(40)), body=40_000)
    log = kit.root / "commitlog" / f"{0:020d}"
    drop_pages(log)
    taken: list[int] = []
    with connected(kit) as client:
        while len(taken) < 40:
            answer = client.ask(pull_frame("TopicA", "SQL", len(taken)))
            assert answer.code in (0, 20)
            taken += [body[0] for body in bodies(answer)]
            assert numbers(answer)[2] == len(taken)
    assert taken == list(range(40))


def drop_pages(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    found = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)], capture_output=True)
    assert found.stdout.split() == [b"0"], "no page is in memory"
