"""What control says of sends that took long."""

from pathlib import Path

from ringmq.broker import slow_requests
from tests.broker.exporter_kit import kit


def test_readers_that_are_faster_do_not_hold_control(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        ring = made.plane.header.slow[0]
        ring.head = 3
        taken = 0
        for _ in slow_requests.take(made.plane):
            ring.head += 1
            taken += 1
            assert taken < 64, "control never comes to an end"
        assert (taken, ring.tail, ring.head) == (3, 3, 6)
