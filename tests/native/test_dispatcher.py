"""The dispatch role against the queue and index files of a stock broker, and its restart, faults and cleaning."""

import contextlib
import faulthandler
import mmap
import os
import shutil
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from crash_kit import write_rest
from plane_kit import Kit

from ringmq.native import ffi, lib
from ringmq.store.delay_levels import native_delay_levels
from tests.waiting import wait_until

DEFERRED_CLOSE_S = 2.9
"""RMQ_DEFERRED_CLOSE_MS, less what a clock of milliseconds leaves out."""
DELAY_LEVELS_MS = [
    1000, 5000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000,
    600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
]  # fmt: skip


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "store", segment_bytes=1 << 20)


def produce(kit: Kit, topic: int, count: int, queues: int = 1, body: bytes = b"x", keys: bool = True) -> None:
    with kit.writer() as write:
        for number in range(count):
            properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01a{number} shared\x02TAGS\x01t{number % 3}\x02".encode()
            kit.request(topic, number % queues, body, properties=properties if keys else b"")
            if number % 32 == 31:
                write_rest(kit, write)
                kit.completions()
        write_rest(kit, write)
        kit.completions()


def drain(kit: Kit, dispatch: Any) -> None:
    for _ in range(100):
        dispatch()
        if kit.marks.dispatched_offset == kit.marks.append_offset or kit.marks.dispatch_fault:
            return
    raise AssertionError("dispatch does not get to the end")


def index_entries(path: Path, slots: int, entries: int) -> tuple[tuple[int, ...], bytes]:
    data = path.read_bytes()
    assert len(data) == 40 + slots * 4 + entries * 20
    return struct.unpack_from(">qqqqii", data), data[40:]


@pytest.fixture
def golden_kit(tmp_path: Path, golden_store: Path, golden_log: list[bytes]) -> Kit:
    """The log of a stock broker with empty queues and index."""
    kit = Kit(tmp_path / "store", segment_bytes=1 << 20, slots=100)
    kit.header.settings.batch_queue_file_bytes = 4600
    shutil.rmtree(kit.root / "commitlog")
    shutil.copytree(golden_store / "commitlog", kit.root / "commitlog")
    view, queues, end = ffi.new("struct rmq_record_view *"), {}, 0
    for data in golden_log:
        lib.rmq_record_parse(data, len(data), 0, view)
        end = view.physical_offset + view.total_size
        name = data[view.topic_at : view.topic_at + view.topic_length]
        queues.setdefault(name, set()).add(view.queue_id)
    for name, ids in queues.items():
        kit.topic(name, max(ids) + 1, lib.RMQ_TOPIC_BATCH_QUEUE if name == b"GoldBatchCQ" else 0)
    kit.marks.append_offset = end
    return kit


def run_golden(kit: Kit, pieces: int = 1, *, each: bool = False) -> None:
    """Dispatch everything, starting again `pieces` times from a dispatched offset set back; `each`: a record a time."""
    levels = native_delay_levels(DELAY_LEVELS_MS)
    error, ends = ffi.new("int *"), [position + len(data) for position, data, _ in kit.records()]
    for piece in range(pieces):
        if piece:
            kit.marks.dispatched_offset = [o for o, *_ in kit.records()][piece * 700]
        handle = lib.rmq_dispatcher_open(kit.plane, 64 if each else 3, levels, error)
        assert handle != ffi.NULL, error[0]
        for kit.marks.append_offset in ends if each else ends[-1:]:
            while kit.marks.dispatched_offset < kit.marks.append_offset:
                assert lib.rmq_dispatcher_run(handle, 1) == lib.RMQ_RUN_BUDGET
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            assert lib.rmq_dispatcher_run(handle, 10_000_000) == lib.RMQ_RUN_BUDGET
        lib.rmq_dispatcher_close(handle)


def files_of(root: Path, folder: str) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in (root / folder).rglob("0*") if path.is_file()}


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("pieces", [1, 5])
def test_queue_files_are_those_of_stock(golden_kit: Kit, golden_store: Path, pieces: int, each: bool) -> None:
    run_golden(golden_kit, pieces, each=each)
    for folder, least in (("consumequeue", 30), ("batchconsumequeue", 2)):
        theirs = {
            p.relative_to(golden_store): p.read_bytes() for p in (golden_store / folder).rglob("0*") if p.is_file()
        }
        ours = {
            p.relative_to(golden_kit.root): p.read_bytes()
            for p in (golden_kit.root / folder).rglob("0*")
            if p.is_file()
        }
        written = {path for path, data in theirs.items() if any(data)}
        assert len(written) >= least
        assert ours.keys() == written
        for path in written:
            assert ours[path] == theirs[path], path


@pytest.mark.parametrize("pieces", [1, 5])
def test_index_files_are_those_of_stock(golden_kit: Kit, golden_store: Path, pieces: int) -> None:
    run_golden(golden_kit, pieces)
    theirs = [index_entries(p, 100, 400) for p in sorted((golden_store / "index").iterdir())]
    ours = [index_entries(p, 100, 400) for p in sorted((golden_kit.root / "index").iterdir())]
    assert [h for h, _ in ours] == [h for h, _ in theirs]
    assert [b for _, b in ours] == [b for _, b in theirs]


def test_units_tags_and_published_words(kit: Kit) -> None:
    topic = kit.topic(b"T", 2)
    produce(kit, topic, 700, 2)
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
    records = {(v.queue_id, v.queue_offset): (o, len(d)) for o, d, v in kit.records()}
    for queue_id in (0, 1):
        units = kit.queue_units("T", queue_id)
        assert sorted(units) == list(range(350))
        for offset, (position, size, tags_code) in units.items():
            assert records[queue_id, offset] == (position, size)
            tag = f"t{(offset * 2 + queue_id) % 3}".encode()
            assert tags_code == lib.rmq_java_hash(tag, 2)
        queue = kit.queue(topic, queue_id)
        assert (queue.max_offset, queue.min_offset) == (350, 0)
        assert queue.max_physical_offset == sum(records[queue_id, 349])
    assert len(list((kit.root / "index").iterdir())) == 6  # 2100 keys, 399 a file


def test_many_queues_with_few_open_files(kit: Kit) -> None:
    topic = kit.topic(b"T", 40)
    kit.header.settings.message_index_enable = 0
    produce(kit, topic, 400, 40)
    with kit.dispatcher(open_files=3) as dispatch:
        drain(kit, dispatch)
        assert kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters[lib.RMQ_DISPATCH_OPEN_FILES] == 3
    for queue_id in range(40):
        assert sorted(kit.queue_units("T", queue_id)) == list(range(10))


@pytest.mark.parametrize(("queues", "batches", "writes_max"), [(512, 1, 512), (4, 2, 20)])
def test_a_batch_grows_while_its_queues_have_few_records(kit: Kit, queues: int, batches: int, writes_max: int) -> None:
    """Each queue of a batch costs a write, so that many of them need more records; few queues are published early."""
    topic = kit.topic(b"T", queues)
    kit.header.settings.message_index_enable = 0
    produce(kit, topic, 4096, queues, keys=False)
    counters = kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
        assert counters[lib.RMQ_DISPATCH_RECORDS] == 4096
        assert counters[lib.RMQ_DISPATCH_BATCHES] == batches
        assert counters[lib.RMQ_DISPATCH_QUEUE_WRITES] <= writes_max


def test_short_runs_are_stored_and_not_written(kit: Kit) -> None:
    """A write call for the first few, then one for each 4 KiB, also from file to file; replayed they are the same."""
    topic = kit.topic(b"T", 2)
    kit.header.settings.queue_file_bytes = 8000
    produce(kit, topic, 1000, 2, keys=False)
    with kit.dispatcher() as dispatch:
        kit.dispatch_each(dispatch, 1000)
        counters = kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters
        assert counters[lib.RMQ_DISPATCH_BATCHES] == 1000
        assert counters[lib.RMQ_DISPATCH_QUEUE_WRITES] <= 2 * 2 * (4 + 8000 // 4096 + 1)
    expected = [{v.queue_offset: (o, len(d), 0) for o, d, v in kit.records() if v.queue_id == q} for q in (0, 1)]
    assert [kit.queue_units("T", queue_id) for queue_id in (0, 1)] == expected
    kit.marks.dispatched_offset = kit.marks.flushed_offset = 0
    with kit.dispatcher() as dispatch:
        kit.dispatch_each(dispatch, 300)  # of 500 that are published: no zero goes over those
        assert [kit.queue_units("T", queue_id) for queue_id in (0, 1)] == expected


def test_a_run_that_crosses_two_windows_is_written(kit: Kit) -> None:
    topic, first = kit.topic(b"T"), 262_144 // 20 - 50
    kit.header.settings.queue_file_bytes = 400_000
    kit.queue(topic, 0).max_offset = first
    produce(kit, topic, 1000, keys=False)
    kit.queue(topic, 0).max_offset = 0
    with kit.dispatcher() as dispatch:
        kit.dispatch_each(dispatch, 1000)
        assert kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters[lib.RMQ_DISPATCH_QUEUE_WRITES] < first // 1024 + 20
    units = kit.queue_units("T", 0)
    assert [units[first + number][0] for number in range(1000)] == [position for position, *_ in kit.records()]


def test_units_come_in_any_order_into_a_block_written_ahead(kit: Kit) -> None:
    """What waits in the log of a slave that took over need not have ascending queue offsets."""
    topic = kit.topic(b"T")
    produce(kit, topic, 40, keys=False)
    positions = [position for position, *_ in kit.records()]
    order = [100, 101, 102, 50, *range(103, 130), *range(51, 60)]
    path = kit.root / "commitlog" / f"{0:020d}"
    with path.open("r+b") as log:
        for position, queue_offset in zip(positions, order, strict=True):
            log.seek(position + 20)
            log.write(struct.pack(">q", queue_offset))
    with kit.dispatcher() as dispatch:
        kit.dispatch_each(dispatch, 40)
    units = kit.queue_units("T", 0)
    assert [units[queue_offset][0] for queue_offset in order] == positions


def test_a_page_that_is_missing_under_a_store_is_written(kit: Kit) -> None:
    """The file system may have nothing behind a mapping (a copying one that is full): no SIGBUS ends the worker."""
    topic = kit.topic(b"T")
    produce(kit, topic, 30, keys=False)
    path = kit.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    counters = kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters
    with kit.dispatcher() as dispatch:
        kit.dispatch_each(dispatch, 10)
        stored = counters[lib.RMQ_DISPATCH_QUEUE_WRITES]
        assert stored < 10
        os.truncate(path, 0)
        kit.dispatch_each(dispatch, 30)
        assert counters[lib.RMQ_DISPATCH_QUEUE_WRITES] == stored + 20
    os.truncate(path, kit.header.settings.queue_file_bytes)
    assert sorted(kit.queue_units("T", 0)) == list(range(10, 30))


def test_a_bus_error_of_anybody_else_still_ends_the_process(kit: Kit, tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(4096))
    pid = os.fork()
    if not pid:
        faulthandler.disable()
        with kit.dispatcher(), path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
            os.truncate(path, 0)
            mapped[0] = 1
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGBUS


def test_a_bus_error_that_was_sent_ends_the_process(kit: Kit) -> None:
    """There is no access that would be repeated."""
    pid = os.fork()
    if not pid:
        faulthandler.disable()
        with kit.dispatcher():
            os.kill(os.getpid(), signal.SIGBUS)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGBUS


def test_files_that_wait_for_the_sync_hold_few_descriptors(kit: Kit) -> None:
    topic = kit.topic(b"T", 300)
    kit.header.settings.message_index_enable = 0
    produce(kit, topic, 600, 300)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with kit.dispatcher(open_files=3) as dispatch:
        drain(kit, dispatch)
        assert len(list(Path("/proc/self/fd").iterdir())) - before < 100
        assert lib.rmq_dispatcher_sync(dispatch.handle) == 0
    for queue_id in range(300):
        assert sorted(kit.queue_units("T", queue_id)) == [0, 1]


def test_sync_policy_dispatches_only_what_is_flushed(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store", sync=True)
    topic = kit.topic(b"T")
    for _ in range(2):
        kit.request(topic, 0, b"x")
    with kit.writer() as write, kit.dispatcher() as dispatch:
        write()
        dispatch()
        assert kit.queue(topic, 0).max_offset == 0
        kit.marks.flushed_offset = kit.records()[1][0]
        dispatch()
        assert kit.queue(topic, 0).max_offset == 1


def test_a_topic_whose_pulls_are_cold_keeps_its_consume_queues(kit: Kit) -> None:
    topic = kit.topic(b"T", flags=lib.RMQ_TOPIC_PULL_COLD | lib.RMQ_TOPIC_SEND_COLD)
    produce(kit, topic, 3)
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
    assert sorted(kit.queue_units("T", 0)) == [0, 1, 2]
    assert not (kit.root / "batchconsumequeue").exists()


def test_prepared_and_rollback_records_get_no_unit(kit: Kit) -> None:
    topic = kit.topic(b"T")
    for flag in (0, 4, 12, 8):
        kit.request(topic, 0, b"x", sys_flag=flag, properties=f"KEYS\x01k{flag}\x02".encode())
    with kit.writer() as write, kit.dispatcher() as dispatch:
        write()
        drain(kit, dispatch)
    assert [(v.sys_flag, v.queue_offset) for *_, v in kit.records()] == [(0, 0), (4, 0), (12, 0), (8, 1)]
    assert sorted(kit.queue_units("T", 0)) == [0, 1]
    (path,) = (kit.root / "index").iterdir()
    assert index_entries(path, 64, 400)[0][5] - 1 == 3  # rollback is not indexed, prepared is


def test_first_file_is_filled_before_the_first_unit(kit: Kit) -> None:
    topic = kit.topic(b"T")
    kit.queue(topic, 0).max_offset = 1000
    kit.request(topic, 0, b"x")
    with kit.writer() as write:
        write()
    kit.queue(topic, 0).max_offset = 0  # the queue's files are gone, the log goes on
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
    assert (kit.queue(topic, 0).min_offset, kit.queue(topic, 0).max_offset) == (1000, 1001)
    units = kit.queue_units("T", 0)
    assert [units[o] for o in (900, 999)] == [(0, 0x7FFFFFFF, 0)] * 2
    assert units[1000][:2] == (0, kit.marks.append_offset)
    assert min(units) == 900


def test_unknown_topic_and_junk_are_passed_over(kit: Kit) -> None:
    topic = kit.topic(b"T")
    gone = kit.topic(b"Gone")
    kit.request(gone, 0, b"x")
    kit.request(topic, 0, b"x")
    with kit.writer() as write:
        write()
    lib.rmq_topic_set(kit.plane, gone, 0)
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
    counters = kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters
    assert counters[lib.RMQ_DISPATCH_UNKNOWN_TOPIC] == 1
    assert kit.queue(topic, 0).max_offset == 1
    assert not (kit.root / "consumequeue" / "Gone").exists()


def test_arrivals_reach_parked_pulls_also_through_a_full_ring(kit: Kit) -> None:
    topic = kit.topic(b"T", 20)
    flags = kit.plane.base + kit.header.ports.port[1].parked_flags_at
    for queue_id in range(19):
        flags[kit.queue_slot(topic, queue_id)] = b"\x01"
    produce(kit, topic, 20, 20)
    ring, told = kit.header.ports.port[1].arrived, []
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
        assert ring.head - ring.tail == ring.capacity == 8
        for _ in range(4):
            while ring.tail < ring.head:
                told.append(kit.slot("uint32_t *", ring, ring.tail)[0])
                ring.tail += 1
            dispatch()
    assert sorted(told) == [kit.queue_slot(topic, queue_id) for queue_id in range(19)]
    assert kit.header.ports.port[0].arrived.head == 0


def unlinked_and_open(folder: Path) -> int:
    """How many files below the folder are only kept by this process."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            name = str(link.readlink())
            found += name.startswith(f"{folder}/") and name.endswith(" (deleted)")
    return found


def test_cleaning_follows_the_log(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store")
    for number in range(1, 8):
        kit.create_segment(number * 65536)
    topic = kit.topic(b"T")
    produce(kit, topic, 1600, body=b"x" * 120)
    offsets = [o for o, *_ in kit.records()]
    with kit.dispatcher(open_files=200) as dispatch:
        drain(kit, dispatch)
        files = len(list((kit.root / "index").iterdir()))
        low, began = 4 * 65536, time.monotonic()
        expected = next(i for i, o in enumerate(offsets) if o >= low)
        deleted = lib.rmq_dispatcher_clean_queue(dispatch.handle, kit.queue_slot(topic, 0), low)
        assert deleted == expected // 300
        assert kit.queue(topic, 0).min_offset == expected
        gone = lib.rmq_dispatcher_clean_index(dispatch.handle, low)
        assert 0 < gone < files
        still_open = unlinked_and_open(kit.root)
        assert still_open == deleted + gone or time.monotonic() - began > DEFERRED_CLOSE_S, "mappings keep their blocks"
        assert lib.rmq_dispatcher_may_clean(dispatch.handle)
        wait_until(lambda: unlinked_and_open(kit.root) == 0, "the helper thread has let go")
        assert lib.rmq_dispatcher_clean_queue(dispatch.handle, kit.queue_slot(topic, 0), 1 << 40) > 0
        assert kit.queue(topic, 0).min_offset == kit.queue(topic, 0).max_offset == 1600
        assert len(list((kit.root / "consumequeue" / "T" / "0").iterdir())) == 1
        assert lib.rmq_dispatcher_clean_index(dispatch.handle, 1 << 40) == files - gone - 1


def test_cleaning_waits_while_much_of_what_was_deleted_is_open(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store")
    for number in range(1, 8):
        kit.create_segment(number * 65536)
    topic = kit.topic(b"T")
    produce(kit, topic, 1600, body=b"x" * 120)
    with kit.dispatcher(open_files=16) as dispatch:
        drain(kit, dispatch)
        assert lib.rmq_dispatcher_may_clean(dispatch.handle)
        assert lib.rmq_dispatcher_clean_queue(dispatch.handle, kit.queue_slot(topic, 0), 1 << 40) == 5
        assert unlinked_and_open(kit.root) <= 4, "a fourth of the files that may be open"
        may_clean = lib.rmq_dispatcher_may_clean(dispatch.handle)  # the helper thread closes them meanwhile
        assert not may_clean or unlinked_and_open(kit.root) < 4
        wait_until(lambda: lib.rmq_dispatcher_may_clean(dispatch.handle), "the helper thread has let go")


def test_background_sync_names_what_is_on_disk(kit: Kit) -> None:
    topic = kit.topic(b"T")
    produce(kit, topic, 600)
    state = ffi.new("struct rmq_dispatch_state *")
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
        assert lib.rmq_dispatcher_sync(dispatch.handle) == 0
        lib.rmq_dispatcher_state(dispatch.handle, state)
    assert state.synced_store_time_ms == kit.records()[-1][2].store_time_ms
    names = sorted((kit.root / "index").iterdir())
    assert state.full_index_synced_time_ms == index_entries(names[-2], 64, 400)[0][1]
    assert state.index_files == len(names) == 5


def test_a_queue_that_cannot_be_written_is_a_fault(kit: Kit) -> None:
    topic = kit.topic(b"T")
    produce(kit, topic, 3)
    (kit.root / "consumequeue").write_text("in the way")
    with kit.dispatcher() as dispatch:
        assert dispatch() == lib.RMQ_RUN_FAULT
        assert (kit.marks.dispatch_fault, kit.marks.dispatch_fault_errno) == (lib.RMQ_FAULT_QUEUE_IO, 20)
        assert kit.marks.dispatched_offset == kit.queue(topic, 0).max_offset == 0
    (kit.root / "consumequeue").unlink()
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
    assert kit.marks.dispatch_fault == 0
    assert kit.queue(topic, 0).max_offset == 3


def entries_in_index(kit: Kit) -> list[tuple[int, int]]:
    """(key hash, commit log offset) of every entry, file after file."""
    found = []
    for path in sorted((kit.root / "index").iterdir()):
        header, data = index_entries(path, 64, 400)
        found += [struct.unpack_from(">iq", data, 64 * 4 + number * 20) for number in range(1, header[5])]
    return found


def test_a_replay_gives_a_topic_nothing_of_an_earlier_one_of_its_name(kit: Kit) -> None:
    """As after a reboot: the index is rebuilt from the log's beginning, the queue has its units."""
    earlier = kit.topic(b"T")
    produce(kit, earlier, 100)
    lib.rmq_topic_set(kit.plane, earlier, 0)
    start = int(kit.marks.append_offset)
    topic = kit.topic(b"T", replay_from=start)
    produce(kit, topic, 10)
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
    units = kit.queue_units("T", 0)
    assert kit.queue(topic, 0).max_offset == len(units) == 10
    for again in (start, int(kit.marks.append_offset)):  # records of its own have units, too: none is taken twice
        shutil.rmtree(kit.root / "index")
        kit.queue(topic, 0).replay_from, kit.marks.dispatched_offset = again, 0
        with kit.dispatcher() as dispatch:
            drain(kit, dispatch)
        assert (kit.queue(topic, 0).max_offset, kit.queue_units("T", 0)) == (10, units)
        assert len(entries_in_index(kit)) == 3 * 110, "all records are found by key"


def test_a_topic_made_again_takes_nothing_that_dispatch_had_still_ahead(kit: Kit) -> None:
    earlier = kit.topic(b"T", flags=lib.RMQ_TOPIC_BATCH_QUEUE)
    produce(kit, earlier, 100)
    lib.rmq_topic_set(kit.plane, earlier, 0)
    for flags in (lib.RMQ_TOPIC_BATCH_QUEUE, 0):
        topic = kit.topic(b"T", flags=flags, replay_from=int(kit.marks.append_offset))
        kit.marks.dispatched_offset = 0
        with kit.dispatcher() as dispatch:
            drain(kit, dispatch)
        assert kit.queue(topic, 0).max_offset == 0
        lib.rmq_topic_set(kit.plane, topic, 0)
    assert not (kit.root / "consumequeue").exists() and not (kit.root / "batchconsumequeue").exists()


def test_what_a_dead_dispatch_had_not_published_is_written_again(kit: Kit) -> None:
    topic = kit.topic(b"T")
    produce(kit, topic, 20)
    kit.queue(topic, 0).replay_from = kit.records()[5][0]
    kit.queue(topic, 0).max_offset = 5
    kit.queue(topic, 0).max_physical_offset = kit.marks.append_offset  # stored before max_offset
    with kit.dispatcher() as dispatch:
        drain(kit, dispatch)
    assert kit.queue(topic, 0).max_offset == 20
    assert sorted(kit.queue_units("T", 0)) == list(range(5, 20))
