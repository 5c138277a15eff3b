"""A master's HA writer dies at each of its crash points; test_crash_points.py runs this with that build.

Every call that could meet a crash point happens in a forked child, so that the parent never reads the switch.
"""

import mmap
import random
import struct
from pathlib import Path

import pytest
from crash_kit import SEED, crash_until_hit, in_child, points
from ha_kit import HaKit

from ringmq.native import lib

ROUNDS = 12


@pytest.mark.parametrize("point", points("ha-"))
def test_the_words_stay_right_when_ha_dies(tmp_path: Path, point: str) -> None:
    """No word says more than a slave has said, none falls, and the successor goes on from there."""

    def prepare(repeat: int) -> tuple:
        root = tmp_path / str(repeat)
        root.mkdir()
        ha = HaKit(root)
        ha.marks.confirm_policy = lib.RMQ_CONFIRM_LIMITED
        ha.append(random.Random(repeat).randbytes(300_000))
        log_end, ha.marks.append_offset = ha.marks.append_offset, 1000
        ha.header.ports.parked.head += 1  # somebody waits
        claim = mmap.mmap(-1, 8)
        generator = random.Random(f"{SEED}-{repeat}-{point}")

        def claimed() -> int:
            return int(struct.unpack("=Q", claim[:])[0])

        def serve() -> None:
            """An HA writer with a slave that reports what it has, while the log grows."""
            ha.open()
            ha.require(1)
            slave = ha.follow(claimed())
            for turn in range(ROUNDS):
                ha.marks.append_offset += generator.randrange((log_end - ha.marks.append_offset) // 2 + 1)
                ha.turn_until(lambda: slave.end() == ha.marks.append_offset, "the stream follows")
                assert slave.body() == ha.written[slave.frames()[0][0] : slave.end()]
                lib.rmq_ha_sender_state(ha.sender, (lib.RMQ_REPLICATION_LOST, lib.RMQ_REPLICATION_OK)[turn % 2], 2)
                said = generator.randrange(claimed(), slave.end() + 1)
                claim[:] = struct.pack("=Q", said)
                slave.report(said)
                ha.turn_until(lambda goal=said: ha.marks.replicated_offset >= goal, "it is replicated")
                assert ha.marks.confirm_limit == ha.marks.replicated_offset == said

        def check() -> None:
            words = ha.marks.replicated_offset, ha.marks.confirm_limit
            assert max(words) <= claimed()
            if repeat % 2:
                in_child(serve, f"{point}:3")
                assert (ha.marks.replicated_offset, ha.marks.confirm_limit) >= words
            in_child(serve)
            assert ha.marks.replicated_offset == ha.marks.confirm_limit == claimed()
            ha.close()

        return serve, check

    crash_until_hit(point, prepare)
