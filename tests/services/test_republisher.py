"""The republisher over real roles: each record once and in order, with its edits and its mark."""

import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest
from kit_plane import ROLE, KitPlane
from plane_kit import ARENA_BYTES, Kit, maps_of

from ringmq.broker.requests.turns import Steps, finish
from ringmq.ipc.ports import Port, PortPlan, mark_of
from ringmq.ipc.republish_words import INHERITED, REFUSED, SKIPPED, SUBMITTED
from ringmq.native import ffi, lib
from ringmq.services.republisher import TICK_MS, QueueTarget, Republisher, following_copies
from ringmq.store.queue_reader import QueueReader
from ringmq.store.record_copy import Cause, EditKind, PairEdit
from tests.store.copy_kit import parsed
from tests.waiting import wait_until

EDITS = (PairEdit(EditKind.REMOVE, b"DELAY"), PairEdit(EditKind.ADD, b"TIMES", 1))
BATCHES = 60
RECORDS = 1500
"""More than the ring of requests has slots."""
SLICE_NS = 1_000_000


class Bench:
    """A source topic with records, a republisher, and the roles that serve both."""

    def __init__(self, root: Path, records: int, arena_bytes: int = ARENA_BYTES, *, sync: bool = False) -> None:
        self.kit = kit = Kit(
            root, segment_bytes=4 << 20, request_slots=1024, sync=sync,
            ports=(PortPlan(ROLE, ARENA_BYTES, lib.RMQ_PORT_ORDERED, weight=1),),
        )  # fmt: skip
        self.source, topic_id = kit.queue_slot(kit.topic(b"Source"), 0), kit.topic(b"Target", 2)
        self.target = QueueTarget(topic_id, kit.queue_slot(topic_id, 1), 1)
        self.kept = [b"%06d" % number for number in range(records)]
        with kit.writer() as write, kit.flusher() as flush, kit.dispatcher() as dispatch:
            for body in self.kept:
                kit.request(1, 0, body, properties=b"KEYS\x01k\x02DELAY\x013\x02TIMES\x0141\x02")
                if int(body) % 500 == 499:
                    write(SLICE_NS)
                    flush(SLICE_NS)
                    kit.completions(0, "completed" if sync else "appended")
            write(SLICE_NS)
            flush(SLICE_NS)
            while kit.marks.dispatched_offset < kit.marks.append_offset:
                dispatch()
        self.plane = KitPlane(kit, arena_bytes)
        self.said: list[str] = []
        self.start()

    def start(self) -> None:
        """A process of the service, maybe behind a dead one."""
        self.plane.role(ROLE).generation += 1

        def recover(reader: QueueReader, lane: int) -> Steps[int]:
            return following_copies(self.plane, reader, self.target.queue_slot, ROLE, lane)

        self.republisher = Republisher(self.plane, ROLE, recover, self.said.append, edits=EDITS)

    def step(self) -> int:
        """Collect, and publish a batch."""
        if not self.republisher.collect():
            return 0
        return self.republisher.publish(self.republisher.read(self.source), self.target)

    def finish(self) -> None:
        """Step until every record is published or skipped."""
        with self.kit.writer() as write, self.kit.dispatcher() as dispatch:
            for _ in range(BATCHES):
                self.step()
                write(SLICE_NS)
                dispatch(SLICE_NS)
        self.republisher.collect()

    def word(self, number: int) -> int:
        """Of the role block."""
        return int(self.republisher.words[number])

    def published(self) -> list[Any]:
        """Records of the target."""
        records = (parsed(data) for _, data, _ in self.kit.records())
        return [record for record in records if record.topic == "Target"]

    def bodies(self) -> list[bytes]:
        """Of the published records."""
        return [record.body for record in self.published()]


@pytest.mark.parametrize("arena_bytes", [7_001, 40_000, ARENA_BYTES])
def test_each_record_once_and_in_order(tmp_path: Path, arena_bytes: int) -> None:
    bench = Bench(tmp_path / "store", RECORDS, arena_bytes)
    bench.finish()
    published = bench.published()
    assert [record.body for record in published] == bench.kept
    assert {(record.queue_id, record.properties_raw) for record in published} == {(1, b"KEYS\x01k\x02TIMES\x0142\x02")}
    assert [record.queue_offset for record in published] == list(range(RECORDS))
    marks = [record.prepared_transaction_offset for record in published]
    assert marks == [mark_of(ROLE, 0, offset) for offset in range(RECORDS)]
    assert [bench.word(word) for word in (SUBMITTED, SKIPPED, REFUSED, INHERITED)] == [RECORDS, 0, 0, 0]
    assert (bench.republisher.progress(), bench.step(), bench.said) == (RECORDS, 0, [])
    bench.republisher.close()


def test_a_record_that_cannot_be_copied_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 700)
    log = next((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    for number in (0, 5, 6, 699):
        record = data.index(b"%06d\x06Source" % number)
        data[data.index(b"KEYS", record)] = 0
    log.write_bytes(data)
    bench.finish()
    assert bench.bodies() == [body for body in bench.kept if int(body) not in (0, 5, 6, 699)]
    assert (bench.word(SKIPPED), bench.word(SUBMITTED)) == (4, 696)
    assert "records cannot be copied: NUL 0 (source 0, offset 0)" in bench.said[0]
    bench.republisher.close()


def test_requests_wait_for_the_ring(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 1200)
    with bench.kit.dispatcher() as dispatch:
        dispatch(SLICE_NS)
    assert [bench.step() for _ in range(4)] == [512, 512, 0, 0]
    bench.finish()
    assert bench.bodies() == bench.kept
    bench.republisher.close()


def test_a_copy_that_the_arena_cannot_take_is_an_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 3, 10)
    with pytest.raises(ValueError, match="a copy needs 22 bytes, but the arena has 10"):
        bench.step()
    bench.republisher.close()


def test_it_waits_out_a_refusal_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, now = Bench(tmp_path / "store", RECORDS), [0]
    monkeypatch.setattr("ringmq.services.republisher.monotonic_ms", lambda: now[0])
    tries = 0
    with bench.kit.writer() as write:
        assert bench.step() == 512
        write(SLICE_NS)
        bench.kit.marks.write_hold = lib.RMQ_HOLD_LONGER_SLAVE
        for _ in range(500):
            now[0] += 10
            tries += bench.step() > 0
            write(SLICE_NS)
        assert tries == 11, "pauses of 10 ms, 20 ms, .. 1 s in 5 s"
        assert bench.said == [f"waits: write refuses its records (code 14, cause {lib.RMQ_CAUSE_HELD})"]
        bench.kit.marks.write_hold = 0
        now[0] += 1000
        bench.step()
        write(SLICE_NS)
        bench.step()
    assert len(bench.said) == 2 and bench.said[1].startswith("publishes again after 6.0"), bench.said
    bench.finish()
    assert bench.bodies() == bench.kept
    bench.republisher.close()


def test_the_last_copy_says_where_to_go_on_behind_the_loss_of_the_plane(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 1000)
    with bench.kit.writer() as write, bench.kit.dispatcher() as dispatch:
        bench.step()
        write(SLICE_NS)
        bench.kit.request(bench.target.topic_id, 1, b"a client's", prepared_transaction_offset=0)
        bench.kit.request(bench.target.topic_id, 1, b"other", prepared_transaction_offset=mark_of(ROLE, 1, 900))
        bench.kit.request(bench.target.topic_id, 1, b"other", prepared_transaction_offset=mark_of(ROLE - 1, 0, 900))
        write(SLICE_NS)
        bench.republisher.collect()
        bench.republisher.close()
        bench.plane.role(ROLE).counters = [0] * len(bench.plane.role(ROLE).counters)
        bench.start()
        assert not bench.republisher.collect(), "the queues do not hold the whole log"
        while bench.kit.marks.dispatched_offset < bench.kit.marks.append_offset:
            dispatch(SLICE_NS)
        wait_until(bench.republisher.collect, "the search is over: a turn has a part of it")
        assert bench.republisher.next_offset() == 512
    bench.finish()
    assert [body for body in bench.bodies() if body.isdigit()] == bench.kept
    bench.republisher.close()


@pytest.mark.parametrize("sync", [False, True])
def test_a_replacement_goes_on_behind_what_its_predecessor_had_stored(tmp_path: Path, sync: bool) -> None:
    """Deaths before write has looked, and before the completions are taken."""
    bench = Bench(tmp_path / "store", 2500, sync=sync)
    with bench.kit.writer() as write, bench.kit.dispatcher() as dispatch, bench.kit.flusher() as flush:
        flush(SLICE_NS)
        dispatch(SLICE_NS)
        for is_written in (False, True, True, False, True):
            for _ in range(3):
                if bench.step():
                    break
                write(SLICE_NS)
                flush(SLICE_NS)
            if is_written:
                write(SLICE_NS)
            bench.republisher.close()
            bench.start()
        for _ in range(BATCHES):
            bench.step()
            write(SLICE_NS)
            flush(SLICE_NS)
            dispatch(SLICE_NS)
    assert bench.bodies() == bench.kept and bench.word(INHERITED) > 0
    bench.republisher.close()


def test_completions_are_not_given_back_before_their_offset_is_written_down(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 100)
    with bench.kit.writer() as write:
        bench.step()
        write(SLICE_NS)
    seen: list[int] = []
    done = Port.done
    Port.done = lambda port, ring, count: seen.append(bench.republisher.progress()) or done(port, ring, count)  # type: ignore
    try:
        bench.republisher.collect()
    finally:
        Port.done = done  # type: ignore[method-assign]
    assert seen == [100]
    bench.republisher.close()


def test_a_service_without_work_unmaps_what_retention_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path / "store", 100)
    bench.finish()
    file = tmp_path / "store" / "commitlog" / f"{0:020d}"
    held = maps_of(file)
    bench.kit.marks.min_offset = 4 << 20
    bench.republisher.collect()
    assert maps_of(file) == held, "looked a moment ago"
    later_ms = time.monotonic_ns() // 1_000_000 + TICK_MS
    monkeypatch.setattr("ringmq.services.republisher.monotonic_ms", lambda: later_ms)
    bench.republisher.collect()
    assert maps_of(file) == held - 1
    bench.republisher.close()


def test_requests_of_copies_that_were_not_made_leave_no_gap() -> None:
    made, units = ffi.new("struct rmq_request[6]"), ffi.new("struct rmq_queue_unit[6]")
    for number, kind in enumerate((0, 1, 1, 0, 2, 1)):
        made[number].kind, made[number].body_at = kind, number
        units[number].queue_offset = 100 + 3 * number
    assert lib.rmq_record_copies_mark(made, units, 6, mark_of(ROLE, 2, 0)) == 4
    marks = [mark_of(ROLE, 2, offset) for offset in (103, 106, 112, 115)]
    assert [(one.body_at, one.token, one.prepared_transaction_offset) for one in made[0:4]] == [
        (number, mark, mark) for number, mark in zip((1, 2, 4, 5), marks, strict=True)
    ]


def test_a_damaged_unit_of_the_source_holds_the_service_and_is_told_once(tmp_path: Path) -> None:
    """Its record may be in the log, so nothing is passed over. When the queue is whole again the service goes on."""
    bench = Bench(tmp_path / "store", 1000)
    queue = tmp_path / "store" / "consumequeue" / "Source" / "0" / f"{600 * 20:020d}"
    with queue.open("r+b") as file:
        file.seek(8)
        size = file.read(4)
        file.seek(-4, os.SEEK_CUR)
        file.write(b"\xff" * 4)
        file.flush()
        bench.finish()
        assert bench.bodies() == bench.kept[:600]
        (line,) = bench.said
        assert line.startswith("waits: ") and "queue offset 600" in line and "damaged" in line
        file.seek(8)
        file.write(size)
    bench.finish()
    assert bench.bodies() == bench.kept
    bench.republisher.close()


def test_a_long_search_for_the_last_copy_lets_the_loop_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.services.republisher.RECOVER_MS", 0)
    bench = Bench(tmp_path / "store", 600)
    with bench.kit.writer() as write, bench.kit.dispatcher() as dispatch:
        for _ in range(4):
            bench.step()
            write(SLICE_NS)
        for number in range(50):
            bench.kit.request(bench.target.topic_id, 1, b"client's %d" % number)
        write(SLICE_NS)
        dispatch(SLICE_NS)
        while bench.republisher.progress() < 600:
            bench.step()
            write(SLICE_NS)
            dispatch(SLICE_NS)
        bench.republisher.close()
        bench.plane.role(ROLE).counters = [0] * len(bench.plane.role(ROLE).counters)
        bench.start()
        turns = 0
        while not bench.republisher.collect():
            turns += 1
            assert turns < 100
    assert turns >= 50 and bench.republisher.next_offset() == 600
    bench.republisher.close()


def test_retention_may_pass_a_search_for_the_last_copy(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 100)
    search = following_copies(bench.plane, bench.republisher.reader, bench.source, ROLE)  # type: ignore[arg-type]
    for _ in range(10):
        next(search)
    bench.plane.queue(bench.source).min_offset = 100
    assert finish(search) == 0
    bench.republisher.close()


def test_a_copy_keeps_a_pair_by_which_earlier_versions_named_chains(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 10)
    with bench.kit.writer() as write, bench.kit.flusher() as flush, bench.kit.dispatcher() as dispatch:
        bench.kit.request(1, 0, b"kept", properties=b"RINGMQ_CHAIN\x010/64/0123456789abcdef\x02")
        for role in (write, flush, dispatch):
            role(SLICE_NS)
    bench.finish()
    (copy,) = [record for record in bench.published() if record.body == b"kept"]
    assert copy.properties.keys() == {"RINGMQ_CHAIN", "TIMES"}
    bench.republisher.close()


def test_each_record_to_its_own_queue(tmp_path: Path) -> None:
    kit = Kit(
        tmp_path, segment_bytes=1 << 20, request_slots=1024,
        ports=(PortPlan(ROLE, ARENA_BYTES, lib.RMQ_PORT_ORDERED, weight=1),),
    )  # fmt: skip
    source, first, second = kit.topic(b"Source"), kit.topic(b"First", 2), kit.topic(b"Second")
    named = [(b"First", 1), (b"Gone", 0), (b"Second", 0), (b"Second", 7), (b"First", 0), (b"Source", 0)]
    with kit.writer() as write, kit.flusher(), kit.dispatcher() as dispatch:
        for topic, queue_id in named:
            pairs = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic, queue_id)
            kit.request(source, 0, b"to %b %d" % (topic, queue_id), properties=pairs)
        write(SLICE_NS)
        dispatch(SLICE_NS)
        plane = KitPlane(kit, ARENA_BYTES)
        plane.role(ROLE).generation += 1
        republisher = Republisher(plane, ROLE, lambda reader, lane: iter_zero(), lambda text: None)
        while not republisher.collect():
            write(SLICE_NS)
            dispatch(SLICE_NS)
        assert republisher.read(kit.queue_slot(source, 0)) == len(named)
        missing = republisher.aim_each(len(named), source)
        assert [(found.number, found.cause, found.topic, found.queue_id) for found in missing] == [
            (1, Cause.NO_TOPIC, "Gone", -1), (3, Cause.NO_QUEUE, "Second", 7), (5, Cause.NO_TOPIC, "Source", -1),
        ]  # fmt: skip
        assert republisher.publish_aimed(len(named)) == 3
        write(SLICE_NS)
        dispatch(SLICE_NS)
        republisher.collect()
    copies = [parsed(data) for _, data, _ in kit.records()][len(named) :]
    assert [(copy.topic, copy.queue_id, copy.body) for copy in copies] == [
        ("First", 1, b"to First 1"), ("Second", 0, b"to Second 0"), ("First", 0, b"to First 0"),
    ]  # fmt: skip
    marks = [copy.prepared_transaction_offset for copy in copies]
    assert marks == [mark_of(ROLE, 0, offset) for offset in (0, 2, 4)]
    assert (republisher.words[SKIPPED], republisher.words[SUBMITTED]) == (3, 3)
    assert (first, second) == (2, 3)
    republisher.close()


def iter_zero() -> Steps[int]:
    """Nothing was published before."""
    yield
    return 0


def test_the_collector_may_clear_a_republisher_in_a_cycle(tmp_path: Path) -> None:
    """CPython 3.11 crashes when its collector clears a memoryview that `ffi.from_buffer` holds."""
    bench = Bench(tmp_path, records=1)
    held = ffi.from_buffer(bench.republisher.port.arena, require_writable=True)
    kinds = [type(one) for one in gc.get_referents(held)]
    assert kinds and memoryview not in kinds
