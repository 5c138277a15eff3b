"""What the flush worker's shell decides."""

from pathlib import Path

from ringmq.broker.flush_shell import FlushShell
from ringmq.native import lib
from tests.native.plane_kit import Kit


def test_a_fault_is_taken_back_when_a_dead_predecessor_has_made_the_file(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store")
    kit.create_segment(65536)
    with kit.flusher() as flush:
        assert lib.rmq_flusher_set_fault(flush.handle, lib.RMQ_FAULT_CREATE_FILE, 5) == 0
        shell = FlushShell.__new__(FlushShell)  # without its thread and configuration
        shell._flusher = flush.handle
        assert shell._make_next_segment()
        assert kit.marks.store_fault == lib.RMQ_FAULT_NONE
        assert lib.rmq_flusher_set_fault(flush.handle, lib.RMQ_FAULT_FSYNC, 5) == 0
        assert shell._make_next_segment()
        assert kit.marks.store_fault == lib.RMQ_FAULT_FSYNC
