"""The republisher of the measurements over real roles: each record once and in order, with its edits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plane_kit import ARENA_BYTES, Kit

from ringmq.ipc.ports import Port
from ringmq.loadtest.republisher import Place, Republisher
from ringmq.store.record_copy import EditKind, PairEdit
from tests.store.copy_kit import parsed

EDITS = (PairEdit(EditKind.REMOVE, b"DELAY"), PairEdit(EditKind.ADD, b"TIMES", 1))


class Bench:
    """A source topic with records, a republisher with control's port, and the roles that serve both."""

    def __init__(self, root: Path, records: int, region_bytes: int) -> None:
        self.kit = kit = Kit(root, segment_bytes=4 << 20, request_slots=1024)
        self.source, self.target = kit.topic(b"Source"), kit.topic(b"Target", 2)
        slot = kit.queue_slot(self.target, 1)
        port = Port(SimpleNamespace(struct=kit.plane), 2)
        port.claim()
        self.kept = [b"%06d" % number for number in range(records)]
        with kit.writer() as write, kit.dispatcher() as dispatch:
            for body in self.kept:
                kit.request(self.source, 0, body, properties=b"KEYS\x01k\x02DELAY\x013\x02TIMES\x0141\x02")
                if int(body) % 500 == 499:
                    write()
                    kit.completions()
            write()
            dispatch()
        self.republisher = Republisher(
            kit.plane,
            port,
            kit.queue_slot(self.source, 0),
            Place(self.target, slot, 1),
            EDITS,
            region_bytes=region_bytes,
        )

    def finish(self) -> None:
        """Step until nothing is left and every request has its completion."""
        counts = self.republisher.counts
        with self.kit.writer() as write, self.kit.dispatcher() as dispatch:
            for _ in range(1000):
                self.republisher.step()
                write()
                dispatch()
                if counts.completed + counts.refused_copies >= len(self.kept):
                    break
        self.republisher.step()

    def published(self) -> list[Any]:
        """Records of the target."""
        return [parsed(data) for _, data, _ in self.kit.records() if parsed(data).topic == "Target"]


@pytest.mark.parametrize("region_bytes", [40_000, ARENA_BYTES // 4])
def test_each_record_once_and_in_order(tmp_path: Path, region_bytes: int) -> None:
    bench = Bench(tmp_path / "store", 3000, region_bytes)
    bench.finish()
    published = bench.published()
    assert [record.body for record in published] == bench.kept
    assert {(record.queue_id, record.properties_raw) for record in published} == {(1, b"KEYS\x01k\x02TIMES\x0142\x02")}
    assert [record.queue_offset for record in published] == list(range(3000))
    counts = bench.republisher.counts
    assert (counts.submitted, counts.completed, counts.refused_copies, counts.refused_requests) == (3000, 3000, 0, 0)
    assert (bench.republisher.in_flight, bench.republisher.step()) == (0, 0)
    bench.republisher.close()


def test_a_record_that_cannot_be_copied_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", 700, ARENA_BYTES // 4)
    log = next((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    for number in (0, 5, 6, 699):
        record = data.index(b"%06d\x06Source" % number)
        data[data.index(b"KEYS", record)] = 0
    log.write_bytes(data)
    bench.finish()
    assert [record.body for record in bench.published()] == [
        body for body in bench.kept if int(body) not in (0, 5, 6, 699)
    ]
    assert (bench.republisher.counts.refused_copies, bench.republisher.counts.completed) == (4, 696)
    bench.republisher.close()


def test_requests_wait_for_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path / "store", 1200, ARENA_BYTES // 4)
    republish = bench.republisher
    assert [republish.step() for _ in range(4)] == [512, 512, 0, 0]
    with bench.kit.writer() as write:
        write()
    assert republish.counts.submitted == 1024
    bench.finish()
    assert [record.body for record in bench.published()] == bench.kept
    republish.close()
