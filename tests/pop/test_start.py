"""POP's memory at a start of the broker: clamped to the queues, compared with the log, forgotten behind a cut."""

from __future__ import annotations

import json
import os
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import ffi, lib
from ringmq.pop import log_cut, open_work
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.names import RESERVED, Names, read_names
from ringmq.pop.record_notice import RecordNotice, write_notice
from ringmq.pop.snapshots import Snapshots
from ringmq.pop.take_over import TakeOverError
from ringmq.store import markers
from tests.pop.disk_kit import fill_disk
from tests.pop.memory_kit import content, cut_power, entry, forget_copies, open_memory, order, put, window

CONFIG = BrokerConfig()


@dataclass
class Broker:
    """A log, queues, and the worker that gives messages of them."""

    root: Path
    log: bytearray = field(default_factory=lambda: bytearray(10_000))
    flushed: int = 8_000
    min_offset: int = 0
    queues: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(topic, queue id) -> max_offset, log_end."""
    start: int = 1

    def __post_init__(self) -> None:
        markers.write_abort(self.root, 4711)
        self.plane = SimpleNamespace(
            topic_find=lambda topic: topic if any(name == topic for name, _ in self.queues) else None,
            queue_find=lambda topic, queue_id: (topic, queue_id) if (topic, queue_id) in self.queues else None,
            queue=lambda slot: SimpleNamespace(max_offset=self.queues[slot][0], log_end=self.queues[slot][1]),
            watermarks=self,
        )

    start_id = property(lambda self: self.start)
    flushed_offset = property(lambda self: self.flushed)
    append_offset = property(lambda self: len(self.log))

    def crc(self, offset: int, length: int) -> int | None:
        return zlib.crc32(self.log[offset : offset + length]) if offset + length <= len(self.log) else None

    def look(self, config: BrokerConfig, root: Path) -> Any:
        """StoreLook."""
        topics = SimpleNamespace(queue=lambda topic, queue_id: None)
        return SimpleNamespace(
            plane=self.plane, log_end=len(self.log), log=lambda: self, root=root, config=config, topics=topics
        )

    def starts(self) -> bool:
        """The main process opens the store."""
        self.start += 1
        return open_work.has_open_work(CONFIG, self.root)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    made = Broker(tmp_path, queues={("T", 0): (1000, 0)})
    monkeypatch.setattr(open_work, "StoreLook", made.look)
    yield made
    remove_lasting(tmp_path)


class Worker:
    """The worker `pop`, as far as its memory goes."""

    def __init__(self, broker: Broker) -> None:
        self.memory = open_memory(broker.root, broker.start)
        self.names = Names(self.memory.folder, was_cut=self.memory.was_cut)
        self.snapshots = Snapshots(
            self.memory, broker, broker, self.names,  # type: ignore[arg-type]
            used_entries=lambda: int(lib.rmq_pop_counts_of(self.windows).entries),
        )  # fmt: skip
        self.windows = lib.rmq_pop_windows_open(self.memory.pages, self.memory.layout, 0, 0, ffi.new("uint64_t *"))
        self.places: dict[tuple[str, int], int] = {}
        for number, _, topic, queue_id in self.names.all():
            if (place := int(lib.rmq_pop_window_place(self.windows, number))) != lib.RMQ_NONE:
                self.places[topic, queue_id] = place

    def pop(self, topic: str, offsets: list[int], birth: int = 0, time_ms: int = 1) -> None:
        if (topic, 0) not in self.places:
            number, place = self.names.add("G", topic, 0, birth), ffi.new("uint32_t *")
            assert lib.rmq_pop_window_make(self.windows, number, 0, birth, offsets[0], place) == 0
            self.places[topic, 0] = int(place[0])
        give = {
            "pop_time_ms": time_ms, "mono_ms": 0, "start_offset": offsets[0], "next_offset": offsets[-1] + 1,
            "invisible_ms": 60_000,
        }  # fmt: skip
        place = self.places[topic, 0]
        assert not lib.rmq_pop_window_give(
            self.windows, place, ffi.new("struct rmq_pop_give *", give), offsets, len(offsets)
        )

    def ack(self, topic: str, start: int, offset: int, time_ms: int = 1) -> None:
        code = lib.rmq_pop_ack(self.windows, self.places[topic, 0], start, time_ms, offset, 1, ffi.new("uint32_t *"))
        assert code == lib.RMQ_POP_DONE

    def pop_in_order(self, topic: str, offsets: list[int]) -> None:
        """A batch of an orderly group. The window is there."""
        give = {"pop_time_ms": 1, "mono_ms": 0, "start_offset": offsets[0], "invisible_ms": 60_000}
        place, none = self.places[topic, 0], ffi.new("struct rmq_pop_attempt *")
        assert not lib.rmq_pop_order_give(
            self.windows, place, ffi.new("struct rmq_pop_give *", give), none, offsets, len(offsets)
        )
        lib.rmq_pop_order_show(self.windows, place)

    def is_blocked(self, topic: str = "T") -> bool:
        none = ffi.new("struct rmq_pop_attempt *")
        return bool(lib.rmq_pop_order_blocks(self.windows, self.places[topic, 0], none, 1))

    def state(self, topic: str = "T") -> tuple[int, int, int]:
        """Next offset, first open one, open messages."""
        place = self.places[topic, 0]
        return (
            int(lib.rmq_pop_window_at(self.windows, place).next_offset),
            int(lib.rmq_pop_first_open(self.windows, place)),
            int(lib.rmq_pop_open_messages(self.windows, place)),
        )  # fmt: skip

    def snapshot(self) -> None:
        assert self.snapshots.finish(20_000)
        self.memory.touch_header()
        self.memory.header.clean = 0

    def die(self) -> None:
        self.snapshots.close()
        self.names.close()
        lib.rmq_pop_windows_close(self.windows)
        self.memory.close(clean=False)


def test_a_store_without_pop_costs_nothing(broker: Broker) -> None:
    assert not broker.starts()
    assert not (broker.root / "pop").exists()


def test_the_death_of_all_processes_takes_nothing(broker: Broker) -> None:
    worker = Worker(broker)
    worker.pop("T", [10, 11, 12])
    worker.ack("T", 10, 11)
    worker.die()
    assert broker.starts()
    again = Worker(broker)
    assert (again.memory.origin, again.state()) == ("kept", (13, 10, 2))
    again.die()


def test_without_open_messages_no_worker_is_needed(broker: Broker) -> None:
    worker = Worker(broker)
    worker.pop("T", [10])
    worker.ack("T", 10, 10)
    worker.die()
    assert not broker.starts()
    again = Worker(broker)
    assert again.state() == (11, 11, 0)
    again.die()


@pytest.mark.parametrize("is_clean_image", [True, False])
def test_a_window_is_cut_back_to_the_end_of_its_queue(
    broker: Broker, is_clean_image: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut took records that were done: the messages that get their offsets have to be seen."""
    worker = Worker(broker)
    worker.pop("T", list(range(890, 910)))
    worker.ack("T", 890, 905)
    worker.snapshot()
    worker.die()
    if is_clean_image:
        cut_power(broker.root)
    del broker.log[9_000:]
    broker.queues["T", 0] = 900, 0
    assert broker.starts()
    assert "1 windows reached beyond their queues and were cut back" in caplog.text
    again = Worker(broker)
    assert again.state() == (900, 890, 10)
    again.die()
    cut_power(broker.root)  # the image has it, too
    image = PopMemory.load(broker.root)
    assert image is not None
    again_windows = lib.rmq_pop_windows_open(image.pages, image.layout, 0, 0, ffi.new("uint64_t *"))
    assert lib.rmq_pop_window_at(again_windows, 0).next_offset == 900
    lib.rmq_pop_windows_close(again_windows)
    image.close(clean=True)


@pytest.mark.parametrize("has_room_later", [True, False])
def test_a_start_on_a_full_disk_serves(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_room_later: bool
) -> None:
    """The image has offsets as done that new messages get, and cannot be written anew. No power cut brings it back."""
    worker = Worker(broker)
    worker.pop("T", list(range(890, 910)))
    worker.ack("T", 890, 905)
    worker.snapshot()
    worker.die()
    del broker.log[9_000:]
    broker.queues["T", 0] = 900, 0
    with monkeypatch.context() as patch:
        fill_disk(patch)
        assert broker.starts()
    assert "No space left on device; a power cut before the next snapshot" in caplog.text
    assert not list((broker.root / "pop").glob("*.tmp")), "no room is held"
    again = Worker(broker)
    assert (again.state(), again.snapshots.failure) == ((900, 890, 10), None)
    if has_room_later:
        again.snapshot()
    again.die()
    cut_power(broker.root)
    broker.queues["T", 0] = 905, 0  # five new messages
    assert broker.starts() is has_room_later
    last = Worker(broker)
    if has_room_later:
        assert last.state() == (900, 890, 10)
    else:
        assert (last.memory.origin, last.places) == ("new", {})
    last.die()


def test_a_failure_outlives_a_start_on_a_full_disk(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have forgotten any page, and only a whole image makes up for it."""
    worker = Worker(broker)
    worker.pop("T", [5])
    worker.memory.header.failed_errno = 5
    worker.die()
    with monkeypatch.context() as patch:
        fill_disk(patch)
        broker.starts()
    again = Worker(broker)
    assert "earlier write failed" in str(again.snapshots.failure)
    again.die()
    broker.starts()
    last = Worker(broker)
    assert (last.snapshots.failure, last.state()) == (None, (6, 5, 1))
    last.die()


def test_a_kept_segment_mends_an_image_with_a_hole(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Snapshots write changed pages alone, so the hole would stay until no segment is left."""
    worker = Worker(broker)
    worker.pop("T", [5, 6])
    worker.snapshot()
    worker.die()
    folder = broker.root / "pop"
    (folder / "journal").unlink()
    os.truncate(folder / "image", int(worker.memory.layout.entries_at))
    assert broker.starts()
    assert "0 entries are there instead of 1; the segment has all" in caplog.text
    caplog.clear()
    assert broker.starts() and "entries are there" not in caplog.text
    cut_power(broker.root)
    assert broker.starts()
    again = Worker(broker)
    assert (again.memory.origin, again.state()) == ("kept", (7, 5, 2))
    again.die()


def test_records_that_dispatch_has_not_reached_count(broker: Broker) -> None:
    worker = Worker(broker)
    worker.pop("T", [990, 991])
    worker.die()
    broker.queues["T", 0] = 900, 992
    broker.starts()
    again = Worker(broker)
    assert again.state() == (992, 990, 2)
    again.die()


def test_memory_that_a_start_has_made_is_known_until_it_changes(broker: Broker) -> None:
    """The worker reads the batches of the other broker beside it, once."""
    made = PopMemory.make(broker.root, broker.start, 0, entries_max=8192, windows_max=4096)
    made.save_whole()
    made.close(clean=False)
    worker = Worker(broker)
    assert worker.memory.origin == "kept" and worker.memory.is_of_start
    worker.pop("T", [5])
    worker.snapshot()
    assert not worker.memory.is_of_start
    worker.die()


def test_windows_of_topics_that_are_gone_or_made_anew_end(broker: Broker) -> None:
    broker.queues |= {("Gone", 0): (50, 0), ("Anew", 0): (50, 0), ("Old", 0): (50, 0)}
    worker = Worker(broker)
    for topic in ("Gone", "Anew", "T"):
        worker.pop(topic, [5])
    worker.pop("Old", [5], birth=600)
    worker.die()
    del broker.queues["Gone", 0]
    (broker.root / "config").mkdir()
    births = broker.root / "config" / "ringmqTopicBirths.json"
    births.write_text(json.dumps({"Anew": 700, "Old": 600}))
    assert broker.starts()
    again = Worker(broker)
    assert set(again.places) == {("T", 0), ("Old", 0)}
    again.die()


def test_births_that_cannot_be_read_leave_the_memory_unused(broker: Broker) -> None:
    """The caller starts the worker, which finds that no start has compared the memory."""
    worker = Worker(broker)
    worker.pop("T", [5])
    worker.die()
    (broker.root / "config").mkdir()
    (broker.root / "config" / "ringmqTopicBirths.json").write_text("{")
    with pytest.raises(OSError, match="ringmqTopicBirths"):
        broker.starts()
    again = Worker(broker)
    assert (again.memory.origin, again.places) == ("new", {})
    again.die()


def test_a_start_is_refused_if_messages_behind_consumer_offsets_would_be_lost(broker: Broker) -> None:
    """After a take-over or an export, groups do not go on at their first open message."""
    worker = Worker(broker)
    worker.pop("T", [5])
    worker.die()
    births = broker.root / "config" / "ringmqTopicBirths.json"
    births.parent.mkdir()
    births.write_text("{")
    write_notice(broker.root, RecordNotice(0, 10))
    with pytest.raises(TakeOverError, match="ringmqTopicBirths"):
        broker.starts()
    births.unlink()
    assert broker.starts()
    again = Worker(broker)
    assert again.state() == (6, 5, 1), "nothing has changed"
    again.die()


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        ("nothing", True), ("cut", True), ("cut-flushed", False), ("other-tail", False), ("other-flushed", False),
        ("longer", True), ("deleted", True),
    ],
)  # fmt: skip
def test_memory_of_another_log_is_not_used(
    broker: Broker, change: str, is_used: bool, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(broker)
    worker.pop("T", [5])
    worker.snapshot()
    worker.die()
    match change:
        case "cut":
            del broker.log[9_000:]
        case "cut-flushed":
            del broker.log[7_000:]
        case "other-tail":  # another broker has cut it and gone on
            broker.log[9_500:] = b"x" * 900
        case "other-flushed":
            broker.log[7_990] ^= 1
        case "longer":
            broker.log += b"x" * 900
        case "deleted":
            broker.min_offset = 9_999
            broker.log[:9_999] = b"\1" * 9_999
    assert broker.starts() is is_used
    again = Worker(broker)
    assert again.memory.origin == ("kept" if is_used else "new")
    assert is_used or "the log is not the one of this memory" in caplog.text
    again.pop("T", [6] if is_used else [0])
    assert [number for number, *_ in again.names.all()] == ([1] if is_used else [1, 1025]), "no id is used again"
    again.die()


@pytest.mark.parametrize("is_damaged", [True, False])
def test_names_on_a_full_disk_leave_the_memory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """The start would like to write them anew, and need not."""
    monkeypatch.setattr("ringmq.pop.names.STALE_LINES", 0)
    worker = Worker(broker)
    worker.pop("T", [10, 11, 12])
    worker.ack("T", 10, 11)
    for queue_id in range(3):
        worker.names.add("G", "Ended", queue_id, 0)
    worker.die()
    if is_damaged:
        path = broker.root / "pop" / "names"
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
    with monkeypatch.context() as patch:
        fill_disk(patch)
        assert broker.starts()
        again = Worker(broker)
        assert (again.memory.origin, again.state()) == ("kept", (13, 10, 2))
    again.die()


@pytest.mark.parametrize("base_offset", [6, 1 << 40])
def test_a_damaged_entry_ends_all_windows(broker: Broker, base_offset: int, caplog: pytest.LogCaptureFixture) -> None:
    """The worker finds it, or the start if it reaches beyond the queue."""
    worker = Worker(broker)
    worker.pop("T", [5])
    slot = entry(worker.memory, next(iter(content(worker.memory))))
    slot.base_offset = base_offset
    worker.die()
    assert broker.starts() is (base_offset == 6)
    assert ("1 windows and entries are damaged" in caplog.text) is (base_offset != 6)
    again = Worker(broker)
    assert again.places == {}
    again.die()


def test_ids_begin_again_when_few_are_left(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only after a clean stop without open messages. Marks before it name no window any more."""
    monkeypatch.setattr(open_work, "FEW_IDS", 1 << 20)
    worker = Worker(broker)
    worker.pop("T", [5])
    worker.snapshots.finish(20_000)
    worker.die()
    broker.starts()
    again = Worker(broker)
    assert again.places, "a message is open"
    again.ack("T", 5, 5)
    assert again.snapshots.finish(20_000)
    again.die()
    assert not broker.starts()
    last = Worker(broker)
    assert (last.places, int(last.memory.header.marks_from)) == ({}, len(broker.log))
    last.pop("T", [6])
    assert [number for number, *_ in last.names.all()] == [1]
    last.die()
    monkeypatch.setattr(open_work, "FEW_IDS", 0)
    cut_power(broker.root)
    del broker.log[9000:]
    broker.starts()
    behind_cut = Worker(broker)
    assert int(behind_cut.memory.header.marks_from) == 9000, "marks that come there count again"
    behind_cut.die()


def test_ids_do_not_begin_again_while_a_batch_is_out(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_work, "FEW_IDS", 1 << 20)
    worker = Worker(broker)
    worker.pop("T", [5])
    worker.ack("T", 5, 5)
    worker.pop_in_order("T", [6, 7])
    assert worker.snapshots.finish(20_000)
    worker.die()
    assert not broker.starts(), "the next pop starts the worker"
    again = Worker(broker)
    assert again.is_blocked()
    for offset in (6, 7):
        assert lib.rmq_pop_order_ack(again.windows, again.places["T", 0], 1, offset) == lib.RMQ_POP_DONE
    assert again.snapshots.finish(20_000)
    again.die()
    broker.starts()
    last = Worker(broker)
    assert last.places == {}
    last.die()


@pytest.mark.parametrize("end", [1000, 903, 902])
def test_a_batch_beyond_the_end_of_its_queue_ends(broker: Broker, end: int) -> None:
    """New messages have the same offsets. The memory itself was not cut."""
    worker = Worker(broker)
    worker.pop("T", [899])
    worker.ack("T", 899, 899)
    worker.pop_in_order("T", [900, 901, 902])
    worker.die()
    broker.queues["T", 0] = end, 0
    broker.starts()
    again = Worker(broker)
    assert (again.is_blocked(), again.state()) == (end > 902, (900, 900, 0))
    again.die()


def test_ids_begin_again_beside_names_of_ended_windows(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file keeps the line of a window that has ended."""
    monkeypatch.setattr(open_work, "FEW_IDS", 1 << 20)
    broker.queues["Ended", 0] = 1000, 0
    worker = Worker(broker)
    for topic in ("Ended", "T"):
        worker.pop(topic, [5])
        worker.ack(topic, 5, 5)
    lib.rmq_pop_window_drop(worker.windows, worker.places["Ended", 0])
    assert worker.snapshots.finish(20_000)
    worker.die()
    assert not broker.starts()
    again = Worker(broker)
    assert (again.places, list(again.names.all())) == ({}, [])
    again.die()


def test_a_power_cut_reserves_ids_for_the_worker(broker: Broker) -> None:
    """Lines of names that were not synced may be gone, though marks with their ids are in the log."""
    worker = Worker(broker)
    worker.pop("T", [5])
    worker.die()
    cut_power(broker.root)
    (broker.root / "pop" / "names").write_bytes((broker.root / "pop" / "names").read_bytes().split(b"\n")[0] + b"\n")
    broker.starts()
    again = Worker(broker)
    again.pop("T", [5])
    assert [number for number, *_ in again.names.all()] == [1025]
    again.die()
    found = read_names(broker.root / "pop")
    assert found is not None and found.damaged == 0


@pytest.mark.parametrize("content", [None, b"", b"7"])
def test_ids_of_lost_names_are_passed_over(broker: Broker, content: bytes | None) -> None:
    worker = Worker(broker)
    for topic in ("T", "U"):
        broker.queues[topic, 0] = 1000, 0
        worker.pop(topic, [5])
    worker.die()
    path = broker.root / "pop" / "names"
    path.unlink() if content is None else path.write_bytes(content)
    assert not broker.starts(), "windows without a name end"
    again = Worker(broker)
    again.pop("T", [5])
    assert [number for number, *_ in again.names.all()] == [2 + RESERVED]
    again.die()


def test_a_log_that_ends_before_the_first_mark_gets_new_marks(broker: Broker) -> None:
    """A power cut took the records behind which the memory began. Copies below that place are of this memory."""
    worker = Worker(broker)
    worker.pop("T", [5])
    assert int(worker.memory.header.marks_from) == 10_000
    worker.die()
    del broker.log[9_000:]
    assert broker.starts()
    again = Worker(broker)
    assert int(again.memory.header.marks_from) == 9_000
    again.die()


def reach_of(
    windows: dict[int, int], entries: list[tuple[int, int, int]], batches: dict[int, int]
) -> dict[int, int]:  # fmt: skip
    """The twin of rmq_pop_reach: id -> reach. `windows`: id -> next offset; `entries`: (id, base, open or copied);
    `batches`: id -> last offset."""
    found = {number: max(next_offset, batches.get(number, -1) + 1) for number, next_offset in windows.items()}
    for number, base, bits in entries:
        if number in found and bits:
            found[number] = max(found[number], base + bits.bit_length())
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_reach_of_windows_is_that_of_its_twin(broker: Broker, seed: int) -> None:
    memory = open_memory(broker.root, broker.start)
    for index in range(0, 8000, 1000):  # the chunks are there
        put(memory, index, 0, lib.RMQ_POP_FREE + 1)
        entry(memory, index).state = lib.RMQ_POP_FREE
    order(memory, 0).window = 0
    memory.close(clean=False)
    memory = open_memory(broker.root, broker.start)
    chance = random.Random(seed)
    ids = {chance.randrange(1, 1 << 20): chance.randrange(1000) for _ in range(30)}
    batches = {}
    for place, (number, next_offset) in enumerate(ids.items()):
        slot = window(memory, 3 * place)
        slot.id, slot.next_offset = number, next_offset
        if chance.random() < 0.5:
            lib.rmq_pop_pages_touch(memory.pages, order(memory, place))
            batch, slot.order = order(memory, place), place + 1
            batch.base_offset, batch.count = chance.randrange(1000), chance.randrange(34)
            batch.deltas[(batch.count or 1) - 1 & 31] = chance.randrange(100)
            if 0 < batch.count <= 32:
                batches[number] = batch.base_offset + batch.deltas[batch.count - 1]
    entries = []
    for index in range(0, 1000, 3):
        slot = entry(memory, index)
        number, base = chance.choice([*ids, 7]), chance.randrange(1000)
        words = [chance.getrandbits(64) >> chance.randrange(64) for _ in range(3)]
        slot.window, slot.base_offset, slot.state = number, base, chance.randrange(1, 6)
        slot.present, slot.acked, slot.copied = words
        entries.append((number, base, words[0] & ~words[1] | words[2]))
    places, ends, count = ffi.new("uint32_t[]", 4096), ffi.new("int64_t[]", 4096), ffi.new("uint32_t *")
    windows = int(lib.rmq_pop_reach(memory.pages, memory.layout, places, ends, 4096, count))
    found = {int(window(memory, places[index]).id): int(ends[index]) for index in range(windows)}
    assert (found, count[0]) == (reach_of(ids, entries, batches), len(entries))
    memory.close(clean=True)


def test_an_entry_that_was_published_alone_is_cut_back(broker: Broker) -> None:
    """A death came before the window moved on, and a power cut took the records."""
    worker = Worker(broker)
    worker.pop("T", [880])
    worker.pop("T", list(range(890, 910)), time_ms=2)
    found = window(worker.memory, worker.places["T", 0])
    found.next_offset = 890
    worker.die()
    del broker.log[9_000:]
    broker.queues["T", 0] = 900, 0
    assert broker.starts()
    again = Worker(broker)
    assert again.state() == (900, 880, 11)
    again.die()


def test_a_cut_forgets_copies_as_its_twin_does(broker: Broker) -> None:
    memory = open_memory(broker.root, broker.start)
    put(memory, 0, 1)
    memory.close(clean=False)
    memory = open_memory(broker.root, broker.start)
    chance = random.Random(5)
    slots = [entry(memory, index) for index in range(500)]
    for slot in slots:
        slot.state, slot.acked, slot.copied = chance.randrange(6), chance.getrandbits(64), chance.getrandbits(64)
    before = [(int(slot.state), int(slot.acked), int(slot.copied)) for slot in slots]
    count = int(lib.rmq_pop_forget_copies(memory.pages, memory.layout))
    assert [(int(slot.state), int(slot.acked), int(slot.copied)) for slot in slots] == forget_copies(before)
    assert count == sum(state in (lib.RMQ_POP_REVIVING, lib.RMQ_POP_REVIVED) for state, _, _ in before)
    memory.close(clean=True)


def test_an_ordered_cut_keeps_the_memory(broker: Broker) -> None:
    """Places and copies behind the cut are forgotten. Without that the whole memory would be of another log."""
    worker = Worker(broker)
    worker.pop("T", [880, 881, 899, 901])
    worker.ack("T", 880, 881)
    worker.memory.header.copies_from = 9_000
    worker.snapshot()
    worker.die()
    log_cut.forget_behind(broker.root, 7_000)
    log_cut.forget_behind(broker.root, 7_000)  # a start that was killed does it again
    del broker.log[7_000:]
    broker.log += b"other"
    broker.queues["T", 0] = 900, 0
    assert broker.starts()
    again = Worker(broker)
    assert (again.state(), int(again.memory.header.copies_from)) == ((900, 880, 2), 7_000)
    again.die()


def test_a_cut_of_a_store_without_pop_changes_nothing(tmp_path: Path) -> None:
    log_cut.forget_behind(tmp_path, 100)
    assert not list(tmp_path.iterdir())


def test_a_slave_keeps_no_memory_of_its_own(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Its log was cut and has grown again: the messages that the new master has put there have to be seen."""
    worker = Worker(broker)
    worker.pop("T", list(range(940, 1000)))
    worker.memory.header.copies_from = 9_000
    worker.snapshot()
    worker.die()
    log_cut.forget_behind(broker.root, 9_000)
    log_cut.forget_as_slave(broker.root)
    assert "its own ones are forgotten" in caplog.text
    log_cut.forget_as_slave(broker.root)  # each start of the slave does it
    broker.log[9_000:] = b"o" * 5_000
    broker.queues["T", 0] = 2000, 0
    assert not broker.starts()
    again = Worker(broker)
    assert (again.memory.origin, again.places) == ("new", {})
    again.die()


def test_a_slave_without_pop_makes_no_files(tmp_path: Path) -> None:
    log_cut.forget_as_slave(tmp_path)
    assert not list(tmp_path.iterdir())
