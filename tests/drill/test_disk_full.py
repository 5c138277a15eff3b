"""A full disk: writes are refused with the cause, reads go on, room makes writes possible again."""

from pathlib import Path

import pytest

from ringmq.client import Message, SendError, blocking
from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.running import RunningBroker
from ringmq.store.verify import verify_store
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made"),
]
SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "cleanResourceInterval": 200,
    "diskMaxUsedSpaceRatio": 95,
}


def send_until_refused(producer: blocking.Producer, limit: int) -> tuple[int, SendError]:
    for number in range(limit):
        try:
            producer.send(Message("Full", b"%08d" % number + b"x" * 3000))
        except SendError as error:
            return number, error
    raise AssertionError(f"{limit} messages of 3000 bytes were taken on a full disk")


def test_a_full_disk_refuses_writes_with_the_cause_and_reads_go_on(tmp_path: Path) -> None:
    with small_disk(tmp_path, 48) as disk, RunningBroker(disk / "store", SMALL, log_path=tmp_path / "log") as broker:
        with blocking.Producer(broker.namesrv) as producer:
            producer.send(Message("Full", b"first"))
            ballast = fill(disk)
            taken, refusal = send_until_refused(producer, 20_000)
            assert "No space left" in str(refusal) or "disk" in str(refusal).lower(), refusal
            wait_until(
                lambda: read_watermarks(broker.store).dispatched_offset >= 0 and broker.worker_pids(), "still serving"
            )
            ballast.unlink()

            def accepted() -> bool:
                try:
                    producer.send(Message("Full", b"again"))
                except SendError:
                    return False
                return True

            wait_until(accepted, "writes are taken again once there is room", timeout_s=30)
        assert taken >= 0
        assert broker.stop() == 0
        assert verify_store(disk / "store").problems == []
