"""A poll that kills the worker `pop` each time it is served.

tests/native/test_crash_points.py runs this with the build that has the crash points.
"""

from pathlib import Path

from ringmq.loadtest.load.running import RunningBroker
from tests.broker.test_processes import SMALL
from tests.pop.poll_crowd import waiting
from tests.pop.pop_client import NOTHING
from tests.pop.test_polls_broker import answer, begin, started
from tests.pop.test_pop_broker import send
from tests.raw_client import CLOSED
from tests.staging import make_topic
from tests.waiting import wait_until


def test_a_poll_that_kills_the_worker_holds_it_down_for_seconds_alone(tmp_path: Path) -> None:
    """Its message kills each process that gives it. Other polls go on waiting, and other requests are served."""
    point = {"RINGMQ_CRASH_POINT": "pop-entry-filled"}
    with RunningBroker(tmp_path / "store", SMALL, environment=point) as broker:
        for topic in ("Deadly", "Calm"):
            make_topic(broker.address, topic, 1)
        deadly, calm = started(broker.address, "G_deadly", "Deadly"), started(broker.address, "G_calm", "Calm")
        others, opaque = {begin(calm, poll_ms=10_000) for _ in range(20)}, begin(deadly)
        wait_until(lambda: waiting(broker.address, "G_deadly", "Deadly"), "the poll waits")
        send(broker.address, "Deadly", [b"deadly"], 1)
        ended = answer(deadly, opaque)
        assert (ended.code, ended.remark) == (
            1, "the broker's pop process has ended several times while it served this request"
        )  # fmt: skip
        assert started(broker.address, "G_later", "Calm").ask_pop().code == NOTHING
        while others:
            received = calm.raw.receive()
            assert received is not CLOSED and received.code == NOTHING, received
            others.remove(received.opaque)
