"""Submissions each alone over the real write: chains of transactions, and two users of one port."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit_plane import ROLE, KitPlane
from plane_kit import ARENA_BYTES, Kit

from ringmq.ipc.invariant import InvariantError
from ringmq.ipc.ports import PortPlan
from ringmq.native import ffi, lib
from ringmq.services.appends import Appends, Origin
from ringmq.services.kit.arena import ArenaSlots
from ringmq.services.kit.flight import AGAIN
from ringmq.services.kit.shared_port import SharedPort
from ringmq.services.kit.submissions import submit_all
from ringmq.services.transactions import records
from ringmq.services.transactions.chain_port import ChainPort, Item, Result
from tests.store.copy_kit import parsed, stored

SLICE_NS = 1_000_000
ORIGIN = Origin(1_700_000_000_000, b"\x0a\0\0\1", 5555)


@contextmanager
def writing(root: Path) -> Iterator[tuple[Kit, KitPlane, Callable[[], None]]]:
    """A plane with a port for the service, and a slice of write."""
    kit = Kit(root, segment_bytes=1 << 20, request_slots=256, ports=(PortPlan(ROLE, ARENA_BYTES, weight=1),))
    with kit.writer() as write:
        plane = KitPlane(kit, ARENA_BYTES)
        plane.role(ROLE).generation += 1
        yield kit, plane, lambda: write(SLICE_NS)


def queue_of(kit: Kit, topic: bytes) -> tuple[int, int, int]:
    topic_id = kit.topic(topic)
    return topic_id, kit.queue_slot(topic_id, 0), 0


def log_of(kit: Kit) -> list[Any]:
    return [parsed(data) for _, data, _ in kit.records()]


def half(number: int, target: tuple[int, int, int]) -> Item:
    """The commit of a half message."""
    data = stored(topic=b"RMQ_SYS_TRANS_HALF_TOPIC", body=b"%d" % number, physical_offset=1000 * number)
    return Item(number, number, records.commit_copy(data, 1000 * number, target))


def chain_port(kit: Kit, plane: Any) -> ChainPort:
    return ChainPort(plane, ROLE, queue_of(kit, b"RMQ_SYS_TRANS_HALF_TOPIC"), queue_of(kit, b"Ops"))


def test_a_chain_lists_its_items_and_one_at_fault_does_not_keep_the_others(tmp_path: Path) -> None:
    with writing(tmp_path) as (kit, plane, write):
        target = queue_of(kit, b"Target")
        port = chain_port(kit, plane)
        items = [half(1, target), Item(2, 2), half(3, (99, *target[1:])), half(4, target)]
        assert port.submit(items, 1, 9) == 4 and not port.is_idle
        write()
        assert port.has_results
        results = {result.key: result for result in port.results([])}
        assert {key: result.code for key, result in results.items()} == {1: AGAIN, 2: AGAIN, 3: 1, 4: AGAIN}
        assert results[3].remark == f"the broker does not store it now: cause {lib.RMQ_CAUSE_QUEUE_SLOT}"
        assert port.is_idle and not log_of(kit)
        assert port.submit([items[0], items[1], items[3]], 1, 9) == 3
        write()
        assert list(port.results([])) == [
            Result(1, True, queue_offset=0), Result(2, True, queue_offset=-1), Result(4, True, queue_offset=1),
        ]  # fmt: skip
        assert [(record.topic, record.body) for record in log_of(kit)] == [
            ("Target", b"1"), ("Target", b"4"), ("Ops", b"1,2,4,"),
        ]  # fmt: skip
        assert port.is_idle and port.log_end == int(kit.marks.append_offset) == port.settled_end()


def test_a_half_that_cannot_be_copied_leaves_its_chain(tmp_path: Path) -> None:
    with writing(tmp_path) as (kit, plane, write):
        target = queue_of(kit, b"Target")
        port = chain_port(kit, plane)
        damaged = Item(2, 2, records.commit_copy(b"no record", 7, target))
        assert port.submit([damaged], 0, 9) == 1
        assert port.submit([half(1, target), damaged, half(3, target)], 0, 9) == 3
        write()
        results = list(port.results([]))
        assert [(result.key, result.is_stored) for result in results] == [(2, False), (2, False), (1, True), (3, True)]
        assert results[0].remark.startswith("the half message cannot be copied: DAMAGED")
        assert log_of(kit)[-1].body == b"1,3,"


def test_chains_are_submitted_while_there_is_a_slot_and_a_completion_of_c_stays(tmp_path: Path) -> None:
    with writing(tmp_path) as (kit, plane, write):
        target = queue_of(kit, b"Target")
        port = chain_port(kit, plane)
        of_c = ffi.new("struct rmq_request *")
        of_c.topic_id, of_c.queue_slot, of_c.queue_id = target
        of_c.kind, of_c.body_at, of_c.body_length, of_c.token = lib.RMQ_APPEND_SINGLE, ARENA_BYTES - 8, 8, 9 << 8
        taken = 0
        while port.has_room:
            assert port.submit([half(1, target), half(2, target)], 0, 9) == 2
            taken += 1
            if taken == 2:
                assert lib.rmq_port_submit(plane.struct, port.chains.port, of_c, 1) == 1
        assert taken == 8 and port.submit([half(1, target)], 0, 9) == 0
        while int(lib.rmq_port_settled(plane.struct, port.chains.port)) < 0:
            write()
        assert len(list(port.results([]))) == 4, "those before the completion of C, which a C loop takes"
        found = ffi.new("struct rmq_completion *")
        assert lib.rmq_port_take(plane.struct, port.chains.port, found) and found.token == 9 << 8
        others = []
        while lib.rmq_port_take(plane.struct, port.chains.port, found):
            others.append(ffi.new("struct rmq_completion *", found[0]))
        assert len(list(port.results(others))) == 12 and port.is_idle


@pytest.mark.parametrize("is_whole", [False, True])
def test_appends_of_two_users_share_a_port(tmp_path: Path, is_whole: bool) -> None:
    with writing(tmp_path) as (kit, plane, write):
        queue = queue_of(kit, b"Target")
        shared = SharedPort(plane, plane.port_of(ROLE))  # type: ignore[arg-type]
        first = Appends[str](plane, shared, ArenaSlots(8192, 3))  # type: ignore[arg-type]
        second = Appends[str](plane, shared, ArenaSlots(8192, 1, 3 * 8192))  # type: ignore[arg-type]
        assert not first.append("large", queue, bytes(4097), b"", ORIGIN) and first.body_bytes_max == 4096
        for number in range(3):
            assert first.append(f"{number}", queue, b"a%d" % number, b"K\x01v\x02", ORIGIN, is_whole=is_whole)
        assert not first.append("3", queue, b"", b"", ORIGIN), "no slot is free"
        assert second.append("second", queue, bytes(4096), b"", ORIGIN)
        assert (first.in_flight, second.in_flight) == (3, 1)
        write()
        assert [result.what for result in second.results()] == ["second"]
        results = list(first.results())
        assert [(result.what, result.code, result.queue_offset) for result in results] == [
            ("0", 0, 0), ("1", 0, 1), ("2", 0, 2),
        ]  # fmt: skip
        assert [record.body for record in log_of(kit)] == [b"a0", b"a1", b"a2", bytes(4096)]
        assert results[2].commit_log_end < shared.settled_end == int(kit.marks.append_offset)  # type: ignore[operator]
        gone = queue[0], queue[1] + 1, 0
        assert first.append("gone", gone, b"", b"", ORIGIN)
        write()
        (result,) = first.results()
        assert not result.is_stored and result.cause == lib.RMQ_CAUSE_QUEUE_SLOT
        assert not first.in_flight


def test_a_ring_without_the_room_that_its_owner_has_found_is_a_broken_invariant() -> None:
    """Only another process can have changed the ring's words since the owner has read them, so the worker ends."""
    ring = SimpleNamespace(room=2, submit=lambda requests, count: 1)
    submit_all(SimpleNamespace(room=2, submit=lambda requests, count: count), None, 2)
    with pytest.raises(InvariantError, match=r"the request ring takes what it has room for.*accepted.*1.*count.*2"):
        submit_all(ring, None, 2)
