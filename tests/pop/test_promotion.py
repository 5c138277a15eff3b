"""A slave's start as the master: the copy of the former master's POP memory becomes its own."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.pop import open_work
from ringmq.pop.copy_mark import mark_copy, run_of_copy
from ringmq.pop.image_file import IMAGE
from ringmq.pop.memory import remove_lasting
from ringmq.pop.names import RESERVED, Names
from ringmq.pop.record_scan import RecordScan
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import survey
from tests.pop.memory_kit import cut_power
from tests.pop.test_start import Broker, Worker
from tests.store.golden_stores import pop_config
from tests.waiting import wait_until

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
UNIT = struct.Struct(">qiq")
QUEUE_BYTES = 6000


class Slave(Broker):
    """A slave with a copy of a master's memory, and its start as the master."""

    dispatched_offset = property(lambda self: len(self.log))

    def take_copy(self, *, clean: bool = False) -> None:
        """The worker of a master gives messages, and this broker has a copy of its memory."""
        worker = Worker(self)
        worker.pop("T", [880, 881, 899])
        worker.ack("T", 880, 881)
        if clean:
            assert worker.snapshots.finish(20_000)
        wait_until(lambda: self._is_written(worker), "a snapshot is written")
        worker.die()
        cut_power(self.root)
        mark_copy(self.root / "pop", 7)

    def _is_written(self, worker: Worker) -> int:
        worker.snapshots.turn(monotonic_ms())
        return worker.snapshots.written

    def starts(self) -> bool:
        self.start += 1
        config = BrokerConfig(store_path_root_dir=str(self.root), mapped_file_size_consume_queue=QUEUE_BYTES)
        return open_work.has_open_work(config, self.root)

    def first_free_id(self) -> int:
        names = Names(self.root / "pop")
        number = names.add("G", "T", 1, 0)
        names.close()
        return number


@pytest.fixture
def slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slave]:
    made = Slave(tmp_path, queues={("T", 0): (1000, 0)})
    monkeypatch.setattr(open_work, "StoreLook", made.look)
    yield made
    remove_lasting(tmp_path)


def revive_queue(root: Path, *positions: int) -> None:
    """A revive queue with records at these offsets of the log."""
    folder = root / "consumequeue" / REVIVE / "0"
    folder.mkdir(parents=True)
    units = b"".join(UNIT.pack(position, 100, 3180) for position in positions)
    (folder / f"{0:020}").write_bytes(units.ljust(QUEUE_BYTES, b"\0"))


def test_the_copy_becomes_the_memory(slave: Slave, caplog: pytest.LogCaptureFixture) -> None:
    slave.take_copy()
    with caplog.at_level("INFO"):
        assert slave.starts()
    assert "open messages are those of the former master" in caplog.text
    assert "the machine went down" not in caplog.text
    assert not run_of_copy(slave.root / "pop")
    worker = Worker(slave)
    assert worker.state() == (900, 880, 2)
    worker.die()


def test_ids_that_the_former_master_may_have_given_are_passed_over(slave: Slave) -> None:
    """It may have reserved another block of ids behind the copy."""
    slave.take_copy()
    assert slave.starts()
    assert slave.first_free_id() == 1 + 2 * RESERVED


def test_a_copy_of_a_clean_stop_lacks_no_id(slave: Slave) -> None:
    slave.take_copy(clean=True)
    assert slave.starts()
    assert slave.first_free_id() == 2


@pytest.mark.parametrize(("position", "is_used"), [(9_999, True), (10_000, False)])
def test_later_records_tell_more_than_the_copy(
    slave: Slave, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, position: int, is_used: bool
) -> None:
    """A master that stops writes what is open into the log, and consumer offsets behind it."""
    slave.take_copy()
    revive_queue(slave.root, 100, position)
    slave.log += bytes(500)
    monkeypatch.setattr(open_work, "take_over", lambda look: True)
    assert slave.starts()
    assert (slave.root / "pop" / IMAGE).exists() == is_used
    assert ("than the copy of the master's memory" in caplog.text) != is_used
    assert not run_of_copy(slave.root / "pop")


def test_own_memory_may_lie_before_records(slave: Slave) -> None:
    """A master's own timer delivers them."""
    slave.take_copy()
    (slave.root / "pop" / "copy").unlink()
    revive_queue(slave.root, 10_000)
    slave.log += bytes(500)
    assert slave.starts()
    assert (slave.root / "pop" / IMAGE).exists()


def test_a_log_that_lacks_what_the_copy_tells_of_is_another(slave: Slave, caplog: pytest.LogCaptureFixture) -> None:
    slave.take_copy()
    del slave.log[7_000:]
    assert not slave.starts()
    assert "the log is not the one of this memory" in caplog.text and not run_of_copy(slave.root / "pop")


def test_records_of_a_stock_broker_are_found_by_their_place(pop_copy: Path) -> None:
    """In revive queues, in the timer topic, and in the log where no queue has them yet."""
    config = pop_config(pop_copy)
    scan, end = RecordScan(MessageStore(config), lambda topic, queue_id: -1), survey(config).append_offset
    assert scan.has_behind(0, end, end)
    assert not scan.has_behind(end, end, end)
    shutil.rmtree(pop_copy / "consumequeue")
    assert not scan.has_behind(0, end, end)
    assert scan.has_behind(0, 0, end)
