"""What is synced, and what a full disk leaves behind: test_preloaded_disk.py runs these with its library loaded."""

import errno
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from plane_kit import Kit, die_with_parent

from ringmq.native import ffi, lib
from ringmq.store import markers
from ringmq.store.config import StoreConfig
from ringmq.store.recovery import recover
from tests.native.test_dispatcher import drain, entries_in_index, produce


def syncs() -> list[list[str]]:
    """[call, inode] of every sync up to now, in the order of their ends."""
    path = Path(os.environ["RECORDED_SYNCS"])
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "store", segment_bytes=1 << 20)


def dispatch_and_die(kit: Kit, topic: int) -> None:
    """A dispatch worker publishes units of a topic and is killed before its next round."""
    pid = os.fork()
    if not pid:
        die_with_parent()
        with kit.dispatcher() as dispatch:
            dispatch()  # its first round
            produce(kit, topic, 3)
            drain(kit, dispatch)
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert kit.marks.dispatched_offset == kit.marks.append_offset > 0


def test_what_a_dead_dispatch_has_written_is_synced_before_its_successor_names_a_time(kit: Kit) -> None:
    theirs, ours = kit.topic(b"X"), kit.topic(b"Y")
    dispatch_and_die(kit, theirs)
    before, state = len(syncs()), ffi.new("struct rmq_dispatch_state *")
    produce(kit, ours, 3)
    with kit.dispatcher() as dispatch:
        while not state.synced_store_time_ms:
            dispatch()
            lib.rmq_dispatcher_state(dispatch.handle, state)
        assert "syncfs" in [call for call, _ in syncs()[before:]]
        produce(kit, ours, 3)
        drain(kit, dispatch)
        assert lib.rmq_dispatcher_sync(dispatch.handle) == 0
    inode = (kit.root / "consumequeue" / "Y" / "0" / f"{0:020d}").stat().st_ino
    calls = syncs()[before:]
    assert [call for call, _ in calls].count("syncfs") == 1, "later rounds sync what they have written"
    assert ["fdatasync", str(inode)] in calls[[call for call, _ in calls].index("syncfs") :]


def test_a_clean_stop_syncs_what_a_dead_dispatch_has_written(kit: Kit) -> None:
    dispatch_and_die(kit, kit.topic(b"X"))
    before = len(syncs())
    with kit.dispatcher():
        pass
    assert "syncfs" in [call for call, _ in syncs()[before:]]


def test_a_full_disk_doubles_no_key(kit: Kit) -> None:
    """The keys are in before the units: those of the last record are met again with each new attempt."""
    topic, full = kit.topic(b"T"), Path(os.environ["FULL_DISK"])
    produce(kit, topic, 3)
    full.touch()
    with kit.dispatcher() as dispatch:
        while not kit.marks.dispatch_fault:
            dispatch()
        assert (kit.marks.dispatch_fault, kit.marks.dispatch_fault_errno) == (lib.RMQ_FAULT_QUEUE_IO, errno.ENOSPC)
        assert len(entries_in_index(kit)) == 3 * 3
        full.unlink()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()
    assert kit.queue(topic, 0).max_offset == 3
    assert set(Counter(entries_in_index(kit)).values()) == {1}
    assert len(entries_in_index(kit)) == 3 * 3


def test_a_queue_of_stored_units_meets_a_full_disk_where_its_block_ends(kit: Kit) -> None:
    topic, full, queue_file_units = kit.topic(b"T"), Path(os.environ["FULL_DISK"]), 300
    produce(kit, topic, queue_file_units, keys=False)
    with kit.dispatcher() as dispatch:
        kit.dispatch_each(dispatch, 10)
        full.touch()
        kit.dispatch_each(dispatch, queue_file_units)
        assert (kit.marks.dispatch_fault, kit.marks.dispatch_fault_errno) == (lib.RMQ_FAULT_QUEUE_IO, errno.ENOSPC)
        assert kit.queue(topic, 0).max_offset == 4096 // 20, "those in the block have room"
        full.unlink()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()
    assert [unit[0] for unit in kit.queue_units("T", 0).values()] == [at for at, *_ in kit.records()]


def test_recovery_hears_the_end_of_a_failed_sync(tmp_path: Path) -> None:
    """Or the file system would tell it to the next dispatch, and the restart that it asks for would not be enough."""
    markers.write_failed_marker(tmp_path, "fdatasync: EIO")
    before = len(syncs())
    recover(StoreConfig.from_properties(tmp_path, {}))
    assert ["syncfs", str(tmp_path.stat().st_ino)] in syncs()[before:]
    before = len(syncs())
    recover(StoreConfig.from_properties(tmp_path, {}))
    assert "syncfs" not in [call for call, _ in syncs()[before:]], "the next one has nothing to hear"
