"""A slave's receiver dies at each of its crash points; tests/native/test_crash_points.py runs this with that build.

Every call that could meet a crash point happens in a forked child, so that the parent never reads the switch.
"""

import random
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from crash_kit import SEED, crash_until_hit, in_child, points
from receiver_kit import SlaveKit, frames

from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import lib
from tests.ha.golden_streams import FILE_BYTES, master_log

START, END = 100_000, 180_000


def log_end() -> int:
    """The last record border of the stretch that is sent."""
    at, log = 0, master_log()
    while True:
        size = int.from_bytes(log[at : at + 4], "big")
        if at + size > END:
            return at
        at += size


@pytest.mark.parametrize("point", points("receive-"))
def test_a_death_loses_nothing_that_was_reported(tmp_path: Path, point: str) -> None:
    end = log_end()

    def prepare(repeat: int) -> tuple:
        kit = SlaveKit(tmp_path / str(repeat), segment_bytes=FILE_BYTES)
        kit.create_segment(FILE_BYTES)
        generator = random.Random(f"{SEED}-{repeat}")

        def receive() -> None:
            """The stream from where the slave is, in odd pieces."""
            with kit.receiver() as slave:
                slave.connect()
                slave.run()
                start = kit.marks.append_offset
                stream = frames(
                    master_log()[start:end], start, FILE_BYTES, body_max=generator.choice([900, 5000, 32_768])
                )
                while stream:
                    size = generator.randrange(1, 40_000)
                    slave.feed(stream[:size])
                    stream = stream[size:]
                    assert all(offset <= kit.marks.append_offset for offset in slave.reports())
                while kit.marks.append_offset < end:
                    slave.run()

        def check() -> None:
            append = kit.marks.append_offset
            assert kit.log(0, append) == master_log()[:append]
            assert not any(kit.log(max(append, kit.header.ports.journal.intent_high), 2 * FILE_BYTES))
            if repeat % 2:
                in_child(receive, f"{point}:3")
            in_child(receive)
            assert kit.marks.append_offset == end
            assert kit.log(0, end) == master_log()[:end]
            assert not any(kit.log(end, 2 * FILE_BYTES))

        return receive, check

    crash_until_hit(point, prepare)


WRITE, HA = lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_HA


@pytest.mark.parametrize("point", points("journal-", "control-tenure", "receive-parked-", "receive-ports-"))
def test_a_death_on_the_way_to_the_other_side_leaves_one_owner(tmp_path: Path, point: str) -> None:
    """The journal goes to write and back, with a record of write in between."""

    def prepare(repeat: int) -> tuple:
        kit = SlaveKit(tmp_path / str(repeat), segment_bytes=FILE_BYTES)
        kit.create_segment(FILE_BYTES)
        topic = kit.topic(b"T")

        def opened(role: int) -> AbstractContextManager[Any]:
            return kit.writer() if role == WRITE else kit.receiver()

        def serve(role: int) -> None:
            """The worker of a role, until it has given the journal away."""
            while lib.rmq_journal_is_owned(kit.plane, role):
                with opened(role) as run:
                    lib.rmq_journal_opened(kit.plane)
                    assert kit.header.ports.journal.opened == kit.marks.tenure
                    if role == WRITE and kit.marks.append_offset == 0:
                        kit.marks.tenure = Tenure(TenureState.MASTER, epoch=1).word
                        kit.request(topic, 0, b"of write")
                        run()
                        kit.marks.tenure = Tenure(TenureState.YIELDING, epoch=1).word
                    while (run() if role == WRITE else run.run()) != lib.RMQ_RUN_YIELDED:
                        pass
                lib.rmq_journal_give(kit.plane, role, WRITE if role == HA else HA)

        def change() -> None:
            """To write and back."""
            if kit.marks.append_offset == 0:
                lib.rmq_tenure_publish(kit.plane, Tenure(TenureState.TAKING, epoch=1).word)
                serve(HA)
                lib.rmq_journal_let_open(kit.plane)
            serve(WRITE)

        def check() -> None:
            owner = kit.header.ports.journal.owner
            assert owner in (WRITE, HA)
            in_child(change)
            assert kit.header.ports.journal.owner == HA and not kit.header.ports.journal.opened
            assert len(kit.records()) == 1
            ring = kit.header.ports.port[0].request
            assert ring.tail == ring.head == 1

        return change, check

    crash_until_hit(point, prepare)
