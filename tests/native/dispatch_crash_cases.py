"""Cases of dispatch for the build with crash points: deaths and failed syncs (test_crash_points.py)."""

import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_kit import Load, crash_until_hit, in_child, make_kit, points, write_all
from plane_kit import SHORT_SLICE_NS, Kit, die_with_parent

from ringmq.native import ffi, lib

UNIT_WITHOUT_SIZE = "dispatch-unit-without-size"


def dispatch_all(kit: Kit) -> None:
    with kit.dispatcher(open_files=2) as dispatch:
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch(SHORT_SLICE_NS)


def keys_of(kit: Kit) -> list[tuple[int, int]]:
    """(key hash, commit log offset) in the order in which the index must hold them."""
    found = []
    for position, data, view in kit.records():
        name = data[view.topic_at :][: view.topic_length]
        properties = dict(
            pair.split(b"\x01") for pair in data[view.properties_at :][: view.properties_length].split(b"\x02") if pair
        )
        for key in [properties[b"UNIQ_KEY"], *properties[b"KEYS"].split(b" ")]:
            found.append((lib.rmq_index_key_hash(name, len(name), key, len(key)), position))
    return found


def keys_in_index(kit: Kit) -> list[tuple[int, int]]:
    found = []
    for path in sorted((kit.root / "index").iterdir()):
        data = path.read_bytes()
        (next_number,) = struct.unpack_from(">i", data, 36)
        for number in range(1, max(next_number, 1)):
            found.append(struct.unpack_from(">iq", data, 40 + 64 * 4 + number * 20))
        file, base = ffi.new("struct rmq_index *"), ffi.new("uint64_t[]", len(data) // 8 + 1)
        ffi.memmove(base, data, len(data))
        assert lib.rmq_index_attach(file, base, len(data), 64, 50, 0) == 0
        assert lib.rmq_index_check(file) == 0
    return found


def test_dispatch_fault(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "store", False)
    load = Load(kit, 1)
    load.put(10)
    in_child(lambda: write_all(kit))
    (kit.root / "consumequeue").write_text("in the way")
    assert in_child(lambda: dispatch_all(kit), "dispatch-fault")
    assert (kit.marks.dispatch_fault, kit.marks.dispatch_fault_errno) == (lib.RMQ_FAULT_QUEUE_IO, 20)
    (kit.root / "consumequeue").unlink()
    in_child(lambda: dispatch_all(kit))
    assert kit.marks.dispatch_fault == 0
    assert keys_in_index(kit) == keys_of(kit)


def fail_queue_syncs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    switch = folder / "switch"
    switch.write_text("q")
    monkeypatch.setenv("RINGMQ_SYNC_SWITCH", str(switch))
    return switch


def test_failed_sync_of_a_queue_stays_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = make_kit(tmp_path / "store", False)
    load = Load(kit, 1)
    load.put(10)
    in_child(lambda: write_all(kit))
    load.collect()
    switch = fail_queue_syncs(tmp_path, monkeypatch)
    pid = os.fork()
    if not pid:
        die_with_parent()
        with kit.dispatcher() as dispatch:
            while not kit.marks.dispatch_fault:
                dispatch(SHORT_SLICE_NS)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    fault = (lib.RMQ_FAULT_QUEUE_SYNC, 5)
    assert (kit.marks.dispatch_fault, kit.marks.dispatch_fault_errno) == fault
    switch.unlink()
    topic = load.topics[0]
    for _ in range(2):
        pending = kit.request(topic, 0, b"refused")
        in_child(lambda: write_all(kit))
        (answer,) = kit.completions()
        assert (answer.token, answer.code, answer.cause, answer.cause_errno) == (pending, 14, *fault)
        with kit.dispatcher() as dispatch:
            assert dispatch() == lib.RMQ_RUN_FAULT, "its shell hears of it"
            dispatch()
        assert (kit.marks.dispatch_fault, kit.marks.dispatch_fault_errno) == fault


def test_a_last_sync_that_fails_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = make_kit(tmp_path / "store", False)
    load = Load(kit, 1)
    load.put(10)
    in_child(lambda: write_all(kit))
    with kit.dispatcher() as dispatch:
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch(1)
        assert lib.rmq_dispatcher_sync(dispatch.handle) == 0
        load.put(10)
        in_child(lambda: write_all(kit))
        fail_queue_syncs(tmp_path, monkeypatch)
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch(1)
    assert (kit.marks.dispatch_fault, kit.marks.dispatch_fault_errno) == (lib.RMQ_FAULT_QUEUE_SYNC, 5)


def test_a_unit_that_has_its_size_is_whole(tmp_path: Path) -> None:
    """Recovery takes it for one; so does a reader, which may look before it is published."""

    def prepare(repeat: int) -> tuple[Callable[[], None], Callable[[], None]]:
        kit = make_kit(tmp_path / str(repeat), False)
        kit.header.settings.queue_file_bytes = 400
        load = Load(kit, repeat)
        load.put(60)
        in_child(lambda: write_all(kit))

        def work() -> None:
            with kit.dispatcher() as dispatch:
                kit.dispatch_each(dispatch, len(kit.records()))

        def check() -> None:
            names = [(name, int(path.name)) for name in "AB" for path in (kit.root / "consumequeue" / name).iterdir()]
            found = {name: kit.queue_units(*name) for name in names}
            in_child(work)
            assert kit.marks.dispatched_offset == kit.marks.append_offset
            for name, units in found.items():
                whole = kit.queue_units(*name)
                assert len(whole) == kit.queue(load.topics["AB".index(name[0])], name[1]).max_offset
                assert all(unit == whole[offset] for offset, unit in units.items() if unit[1])
                assert [offset for offset, unit in units.items() if not unit[1]] in ([], [max(units)])

        return work, check

    crash_until_hit(UNIT_WITHOUT_SIZE, prepare)


@pytest.mark.parametrize(
    "point", [p for p in points("dispatch-", "index-") if p not in {"dispatch-fault", UNIT_WITHOUT_SIZE}]
)
def test_dispatch(tmp_path: Path, point: str) -> None:
    def prepare(repeat: int) -> tuple[Callable[[], None], Callable[[], None]]:
        kit = make_kit(tmp_path / str(repeat), False)
        kit.header.settings.queue_file_bytes = 400  # 20 units
        load = Load(kit, repeat)
        if point == "dispatch-batch-unit":
            lib.rmq_topic_set(kit.plane, load.topics[1], lib.RMQ_TOPIC_LIVE << 40 | lib.RMQ_TOPIC_BATCH_QUEUE << 40)
        for reader in (0, 1):
            flags = kit.plane.base + kit.header.ports.port[reader].parked_flags_at
            for slot in range(3):
                flags[slot] = b"\x01"
        load.put(30)
        in_child(lambda: write_all(kit))
        load.collect()
        load.put(30)
        in_child(lambda: write_all(kit))

        def check() -> None:
            load.collect()
            load.put(20)
            in_child(lambda: write_all(kit))
            if repeat % 2:
                in_child(lambda: dispatch_all(kit), f"{point}:1")
            in_child(lambda: dispatch_all(kit))
            load.collect()
            load.check()
            expected: dict[tuple[str, int], list[tuple[int, int]]] = {}
            for position, data, view in kit.records():
                name = data[view.topic_at :][: view.topic_length].decode()
                expected.setdefault((name, view.queue_id), []).append((position, len(data)))
            for (name, queue_id), units in expected.items():
                assert kit.queue(load.topics["AB".index(name)], queue_id).max_offset == len(units)
                if point == "dispatch-batch-unit" and name == "B":
                    raw = next((kit.root / "batchconsumequeue" / name / "0").iterdir()).read_bytes()
                    written = [struct.unpack_from(">qi", raw, 46 * number) for number in range(len(units) + 1)]
                    assert written == [*units, (0, 0)]
                    continue
                written = kit.queue_units(name, queue_id)
                assert [written[offset][:2] for offset in range(len(units))] == units
                assert len(written) == len(units)
            assert keys_in_index(kit) == keys_of(kit)
            for reader in (0, 1):
                ring = kit.header.ports.port[reader].arrived
                told = {kit.slot("uint32_t *", ring, at)[0] for at in range(ring.tail, ring.head)}
                assert told == {0, 1, 2}

        return lambda: dispatch_all(kit), check

    crash_until_hit(point, prepare)
