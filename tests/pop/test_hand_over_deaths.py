"""The worker `pop` dies between any two steps of a hand-over: the next start has all, and so has a RocketMQ broker."""

import shutil
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.store import markers
from tests.drill.test_crash_points import NAME_BYTES
from tests.native.test_crash_points import crash_build
from tests.pop.pop_client import PopClient, Taken
from tests.pop.test_hand_over import EXPORTS, LONG_MS, in_log, offsets, send
from tests.pop.test_memory_deaths import FOLDER, points_of
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
POINTS = sorted(
    points_of(FOLDER / "hand_over.py"),
    key=[
        "pop-points-noted", "pop-points-stored", "pop-points-ended", "pop-points-due", "pop-points-synced",
        "pop-points-committed", "pop-points-handled",
    ].index,
)  # fmt: skip
"""In the order in which a stop passes them."""
ENDED, COMMITTED = POINTS.index("pop-points-ended"), POINTS.index("pop-points-committed")
MESSAGES, POPPED = 6 * len(POINTS), 4


class Consumers:
    """What they have of the one queue, and what they have acknowledged."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.held: list[Taken] = []
        self.done: set[int] = set()

    def ack(self, client: PopClient, count: int) -> None:
        """Acknowledge the messages that were popped first."""
        taken, self.held = self.held[:count], self.held[count:]
        assert all(client.ack(one).code == 0 for one in taken)
        self.done |= {one.offset for one in taken}

    def work(self, address: str) -> None:
        """Acknowledge some messages of an earlier broker, and pop others."""
        client = PopClient(address, "G", "T")
        self.ack(client, 2)
        fresh: list[Taken] = []

        def is_given() -> bool:
            fresh.extend(client.pop(POPPED, LONG_MS))
            return bool(fresh)

        wait_until(is_given, "the worker has started")
        known = self.done | {one.offset for one in self.held}
        assert [one.offset for one in fresh] == list(range(len(known), len(known) + POPPED)), "none comes again"
        self.held += fresh
        self.ack(client, 1)

    def check_files(self, step: int) -> None:
        """A RocketMQ broker gives what lies behind the consumer offset, and what its records say."""
        committed = offsets(self.store, "T", "G").get(0, 0)
        opened = {offset for found, _ in in_log(self.store).values() for offset in found}
        lost = {offset for offset in range(committed) if offset not in self.done | opened}
        assert not lost, f"{POINTS[step]}: the consumer offset {committed} has passed {lost}"
        if step >= ENDED:
            assert not self.done & opened, f"{POINTS[step]}: acknowledged messages come again"
        if step >= COMMITTED:
            assert committed == len(self.held) + len(self.done)

    def finish(self, address: str) -> None:
        """Each message that is not acknowledged is with a consumer, or comes now."""
        client = PopClient(address, "G", "T")

        def has_all() -> bool:
            self.held += client.pop_all(invisible_ms=LONG_MS)
            return self.done | {one.offset for one in self.held} == set(range(MESSAGES))

        wait_until(has_all, "each message is done, or with a consumer")
        self.ack(client, len(self.held))


def die_at_a_stop(store: Path, point: str, consumers: Consumers) -> None:
    """A broker of which the worker `pop` dies at this point of its stop."""
    file = store.with_name("crash-point")
    file.write_bytes(bytes(NAME_BYTES))
    environment = {"RINGMQ_NATIVE": str(crash_build()), "RINGMQ_CRASH_FILE": str(file)}
    with RunningBroker(store, EXPORTS, environment=environment) as broker:
        if not (store / "consumequeue" / "T").exists():
            make_topic(broker.address, "T", 1)
            send(broker.address, "T", MESSAGES)
        consumers.work(broker.address)
        with file.open("r+b", buffering=0) as armed:
            armed.seek(1)
            armed.write(point[1:].encode())
            armed.seek(0)
            armed.write(point[:1].encode())
        broker.stop()
        assert file.read_bytes()[:1] == b"\0", f"{point} was never passed"


def test_a_hand_over_that_dies_loses_nothing(tmp_path: Path) -> None:
    """One store is stopped at each point, and the last stop is whole."""
    store, other = tmp_path / "store", tmp_path / "other"
    consumers = Consumers(store)
    for step, point in enumerate(POINTS):
        die_at_a_stop(store, point, consumers)
        consumers.check_files(step)
        if point == "pop-points-synced":
            shutil.copytree(store, other)
            take_over(other, Consumers(other), consumers)
    with RunningBroker(store, EXPORTS) as broker:
        consumers.finish(broker.address)
        assert broker.stop() == 0
    assert in_log(store) == {} and offsets(store, "T", "G") == {0: MESSAGES}


def take_over(root: Path, there: Consumers, here: Consumers) -> None:
    """Another broker gets the store, whose consumer offsets lie before messages that consumers have."""
    there.held, there.done = list(here.held), set(here.done)
    shutil.rmtree(root / "pop")
    markers.remove_abort(root)
    with RunningBroker(root, EXPORTS) as broker:
        there.finish(broker.address)
        assert broker.stop() == 0
    assert in_log(root) == {} and offsets(root, "T", "G") == {0: MESSAGES}
