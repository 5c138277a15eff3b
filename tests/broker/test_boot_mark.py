"""When a start after a kill may believe that dispatch lacks nothing but the log's tail."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringmq.broker.server import BootMarker, leave_marks
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.store import markers
from ringmq.store.recovery_state import RecoveredStore


def plane_of(dispatched: int, fault: int = 0) -> Plane:
    """The words that the mark looks at: 500 bytes of log were recovered."""
    marks = SimpleNamespace(dispatched_offset=dispatched, dispatch_fault=fault)
    return SimpleNamespace(watermarks=marks, header=SimpleNamespace(recovered_end=500), name="none")  # type: ignore[return-value]


@pytest.mark.parametrize("enough", [True, False])
def test_a_store_that_lacks_more_than_a_tail_is_not_marked_at_the_start(tmp_path: Path, enough: bool) -> None:
    leave_marks(plane_of(0), tmp_path, "broker-a", RecoveredStore("checkpoint", is_tail_enough=enough))
    assert markers.is_same_boot(tmp_path) == enough
    assert markers.has_abort(tmp_path)


def test_it_is_marked_when_dispatch_has_redone_what_was_recovered(tmp_path: Path) -> None:
    plane = plane_of(499)
    mark = BootMarker(plane, tmp_path)
    mark.tick()
    assert not markers.is_same_boot(tmp_path)
    plane.watermarks.dispatched_offset = 500
    mark.tick()
    assert markers.is_same_boot(tmp_path)


def test_it_is_not_marked_while_dispatch_cannot_write(tmp_path: Path) -> None:
    BootMarker(plane_of(500, lib.RMQ_FAULT_QUEUE_SYNC), tmp_path).tick()
    assert not markers.is_same_boot(tmp_path)


def test_a_mark_that_cannot_be_made_is_told_once(tmp_path: Path, log_text: Callable[[], str]) -> None:
    mark = BootMarker(plane_of(500), tmp_path / "gone")
    mark.tick()
    mark.tick()
    assert log_text().count("cannot write the mark") == 1
