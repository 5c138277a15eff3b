"""Every micro-batch exactly once: crash points, kill -9 of `services`, of control and of everybody."""

import random
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_broker_port, free_port
from ringmq.native import lib
from tests.drill.settings import SMALL_STORE
from tests.native.test_crash_points import crash_build
from tests.staging import Stager, bodies_of, make_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
SOURCES = Path(__file__).resolve().parents[2] / "native" / "src"
NAME_BYTES = 64
TOPIC, QUEUES, CHUNKS, ROWS = "Exactly", 2, 12, 7
ROLES = (
    lib.RMQ_ROLE_CONTROL, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_FLUSH, lib.RMQ_ROLE_DISPATCH, lib.RMQ_ROLE_READ,
    lib.RMQ_ROLE_SERVICES,
)  # fmt: skip
COMMON_POINTS = ["write-element", "write-record", "write-journal-entry", "write-journal", "write-append-offset"]
POINTS = {
    "ASYNC_FLUSH": ["write-request-tail", "write-completion-head"],
    "SYNC_FLUSH": ["write-parked-head", "flush-completed-head"],
}


ELSEWHERE = {"port-claimed", "port-acknowledged", "port-commits-filled", "port-commits-published"}
"""Of a start, test_crash_points.py; of an ordered port and of one with offsets, tests/native/port_crash_cases.py."""


def service_points() -> list[str]:
    """Points that `services` passes when it submits chunks and takes their completions."""
    text = (SOURCES / "plane/port.c").read_text()
    return sorted(set(re.findall(r'RMQ_CRASH\("([a-z-]+)"\)', text)) - ELSEWHERE)


def chunks_of(batch: int, mark: str = "") -> list[tuple[str, int, list[bytes]]]:
    """What a micro-batch holds: every row says batch, chunk and place."""
    return [
        (TOPIC, chunk % QUEUES, [f"{mark}{batch}/{chunk}/{row}".encode() for row in range(ROWS)])
        for chunk in range(CHUNKS)
    ]


def expected(batches: int) -> list[bytes]:
    """All rows, queue by queue, as `bodies_of` gives them."""
    return [
        row
        for queue in range(QUEUES)
        for batch in range(batches)
        for _, of_queue, rows in chunks_of(batch)
        if of_queue == queue
        for row in rows
    ]


def commit_and_again(
    stager: Stager, batch: int, meanwhile: Callable[[], None], *, first: Callable[[], None] = lambda: None
) -> None:
    """A driver that commits while something dies, and one that runs the micro-batch again with other chunks. `first`:
    done when all is staged and nothing committed."""
    staged = stager.stage("drill", batch, chunks_of(batch))
    first()
    death = threading.Thread(target=meanwhile)
    death.start()
    stager.commit("drill", batch, staged)
    death.join()
    stager.commit("drill", batch, stager.stage("drill", batch, chunks_of(batch, "again ")[::-1]))


def wait_for_all(broker: RunningBroker) -> None:
    plane = Plane.open(plane_name(broker.store))
    wait_until(lambda: all(plane.role(role).state == STATE_SERVING for role in ROLES), "everybody serves")


@pytest.mark.parametrize("policy", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_at_every_crash_point(tmp_path: Path, policy: str) -> None:
    switch = tmp_path / "crash-point"
    switch.write_bytes(bytes(NAME_BYTES))
    environment = {"RINGMQ_NATIVE": str(crash_build()), "RINGMQ_CRASH_FILE": str(switch)}
    settings = {**SMALL_STORE, "flushDiskType": policy}
    points = [*service_points(), *COMMON_POINTS, *POINTS[policy]]
    assert len(service_points()) >= 3

    def arm(name: str) -> None:
        with switch.open("r+b", buffering=0) as file:
            file.seek(1)
            file.write(name[1:].encode().ljust(NAME_BYTES - 1, b"\0"))
            file.seek(0)
            file.write(name[:1].encode())

    with RunningBroker(tmp_path / "store", settings, environment=environment) as broker:
        make_topic(broker.address, TOPIC, QUEUES)
        with Stager(broker, 60_000) as stager:
            for batch, point in enumerate(points):
                commit_and_again(stager, batch, lambda: None, first=lambda: arm(point))  # noqa: B023 (called within)
                wait_until(lambda: switch.read_bytes()[:1] == b"\0", f"{point} was hit")
                wait_for_all(broker)
        wait_until(
            lambda: len(bodies_of(broker.address, TOPIC, QUEUES)) >= len(expected(len(points))), "all is readable"
        )
        assert bodies_of(broker.address, TOPIC, QUEUES) == expected(len(points))
        assert broker.stop() == 0


@pytest.mark.parametrize("victims", [("services",), ("control",), ("services", "control"), ("services", "write")])
def test_kill_of_workers_at_any_time(tmp_path: Path, victims: tuple[str, ...]) -> None:
    chance, batches = random.Random(7), 5
    with RunningBroker(tmp_path / "store", SMALL_STORE) as broker:
        make_topic(broker.address, TOPIC, QUEUES)

        def kill() -> None:
            time.sleep(chance.random() * 0.02)  # a span before the fault, drawn from the seed
            for victim in victims:
                broker.signal_worker(victim, signal.SIGKILL)

        with Stager(broker, 60_000) as stager:
            for batch in range(batches):
                commit_and_again(stager, batch, kill)
                wait_for_all(broker)
        wait_until(lambda: len(bodies_of(broker.address, TOPIC, QUEUES)) >= len(expected(batches)), "all is readable")
        assert bodies_of(broker.address, TOPIC, QUEUES) == expected(batches)
        plane = Plane.open(plane_name(broker.store))
        assert plane.role(lib.RMQ_ROLE_SERVICES).deaths == (batches if "services" in victims else 0)


def test_kill_of_everybody_at_any_time(tmp_path: Path) -> None:
    """The broker comes back at the same place, and the driver that still asks gets its answer."""
    chance, batches = random.Random(11), 3
    store = tmp_path / "store"
    ports = {"port": free_broker_port(), "namesrv_port": free_port()}  # nobody gets them while the broker is away
    running = [RunningBroker(store, SMALL_STORE, **ports)]
    try:
        make_topic(running[0].address, TOPIC, QUEUES)

        def kill_all() -> None:
            time.sleep(chance.random() * 0.03)  # a span before the fault, drawn from the seed
            running[0].kill_all()
            running[0] = RunningBroker(store, SMALL_STORE, **ports)

        for batch in range(batches):
            with Stager(running[0], 60_000) as stager:
                commit_and_again(stager, batch, kill_all)
        wait_until(
            lambda: len(bodies_of(running[0].address, TOPIC, QUEUES)) >= len(expected(batches)), "all is readable"
        )
        assert bodies_of(running[0].address, TOPIC, QUEUES) == expected(batches)
        assert running[0].stop() == 0
    finally:
        running[0].close()
