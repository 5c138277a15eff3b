"""What is synced, and when: test_recorded_syncs.py runs these with syncs recorded."""

import os
import signal
from pathlib import Path

import pytest
from plane_kit import Kit, die_with_parent

from ringmq.native import ffi, lib
from tests.native.test_dispatcher import drain, produce


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
