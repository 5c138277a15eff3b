"""A slave's receiver dies at each of its crash points; tests/native/test_crash_points.py runs this with that build.

Every call that could meet a crash point happens in a forked child, so that the parent never reads the switch.
"""

import random
from pathlib import Path

import pytest
from crash_kit import SEED, crash_until_hit, in_child, points
from receiver_kit import SlaveKit, frames

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
