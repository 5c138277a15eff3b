"""Words of a live plane are made impossible: the worker ends with its line, and nothing acknowledged is lost."""

import itertools
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.ipc.workers import WORKERS
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import ffi, lib
from tests.broker.exporter_kit import value
from tests.drill.settings import SMALL_STORE
from tests.raw_client import RawClient
from tests.staging import bodies_of, make_topic
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.drill
TOPIC = "Sound"
POLICIES = ("SYNC_FLUSH", "ASYNC_FLUSH")
"""Of a state one of them, by turns."""


class Broken:
    """A broker with acknowledged messages, and its plane."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.plane = Plane.open(plane_name(broker.store))
        self.sent = 0
        make_topic(broker.address, TOPIC, 1)

    def send(self, count: int = 20) -> None:
        with RawClient(self.broker.address) as client:
            for _ in range(count):
                assert client.send(TOPIC, b"%d" % self.sent).code == 0
                self.sent += 1

    def check(self) -> None:
        """All that was acknowledged is there once; the broker takes more."""
        self.send()
        wait_dispatched(self.broker.store)
        assert bodies_of(self.broker.address, TOPIC, 1) == [b"%d" % number for number in range(self.sent)]

    def wait_replaced(self, role: int, generation: int) -> None:
        """Until a later process of the role serves."""
        block = self.plane.role(role)
        wait_until(lambda: block.generation > generation and block.state == STATE_SERVING, "its replacement serves")


@pytest.fixture
def broken(tmp_path: Path, flush: str) -> Iterator[Broken]:
    with RunningBroker(tmp_path / "store", {**SMALL_STORE, "flushDiskType": flush}) as broker:
        made = Broken(broker)
        made.send()
        wait_dispatched(broker.store)  # a worker that is not done would store its own offset over a planted one
        yield made
        made.check()
        assert broker.stop() == 0


def port(plane: Plane, role: int) -> Any:
    return plane.header.ports.port[plane.port_of(role)]


def plant_arrival(plane: Plane) -> None:
    """A queue that is none."""
    ring = port(plane, lib.RMQ_ROLE_READ).arrived
    slot = ffi.cast("uint32_t *", plane.struct.base + ring.slots_at) + (ring.head & (ring.capacity - 1))
    slot[0] = 1 << 31
    ring.head += 1
    plane.wake(lib.RMQ_ROLE_READ)


def plant_verdict(plane: Plane) -> None:
    """An answer of control without length."""
    ring = plane.header.asks.answerer[0].answers[lib.RMQ_ROLE_READ]
    slot = ffi.cast("char *", plane.struct.base + ring.slots_at) + (ring.head & (ring.capacity - 1))
    ffi.memmove(slot, bytes(8), 8)
    ring.head += 64
    plane.wake(lib.RMQ_ROLE_READ)


HEALING: dict[str, tuple[int, Callable[[Plane], None], Callable[[Plane], None], str]] = {
    "an arrival of a queue that is none": (
        lib.RMQ_ROLE_READ, plant_arrival, lambda plane: None,
        r"CRITICAL read-0 broken invariant, parked_runs.c:\d+: not slot < slots",
    ),
    "requests beyond their ring": (
        lib.RMQ_ROLE_WRITE, lambda plane: _add(plane, 1 << 40), lambda plane: _add(plane, -(1 << 40)),
        r"CRITICAL write broken invariant, ring.h:\d+: not waiting <= r->capacity",
    ),
    "dispatched set back": (
        lib.RMQ_ROLE_DISPATCH, lambda plane: setattr(plane.watermarks, "dispatched_offset", 0), lambda plane: None,
        r"CRITICAL dispatch broken invariant, dispatcher.c:\d+: not done == d->dispatched",
    ),
}  # fmt: skip
"""(role, what breaks it, what mends it as its writer would, its line)."""


def _add(plane: Plane, number: int) -> None:
    port(plane, WORKERS.row("services").role).request.head += number  # it sleeps, and submits nothing
    plane.wake(lib.RMQ_ROLE_WRITE)


@pytest.mark.parametrize(("name", "flush"), [*zip(HEALING, itertools.cycle(POLICIES))])
def test_a_worker_that_meets_it_once_is_replaced(broken: Broken, name: str) -> None:
    role, plant, mend, line = HEALING[name]
    process, generation = broken.broker.process.pid, int(broken.plane.role(role).generation)
    os.kill(process, signal.SIGSTOP)  # it starts no replacement before the plane is mended
    try:
        plant(broken.plane)
        wait_until(lambda: broken.plane.role(role).invariant_failures > 0, "it ends")
        mend(broken.plane)
    finally:
        os.kill(process, signal.SIGCONT)
    broken.wait_replaced(role, generation)
    log = broken.broker.log_tail()
    assert re.search(line, log)
    assert "has met a broken invariant (the line before names it); starting it again" in log
    assert "opened with a new plane" not in log and broken.broker.process.pid == process
    worker = ffi.string(broken.plane.role(role).name).decode()
    with urllib.request.urlopen(broken.broker.metrics_url + "/metrics", timeout=20) as page:
        assert value(page.read().decode(), "ringmq_worker_impossible_states_total", worker=worker) == 1


DISPATCH_MEETS_IT = r"dispatcher.c:\d+: not done <= end"
"""With SYNC_FLUSH it sees flushed_offset, and may be the first."""
STAYING: dict[str, tuple[Callable[[Plane], None], str]] = {
    "an answer without length": (plant_verdict, r"verdicts.c:\d+: not rmq_verdict_is_whole"),
    "requests beyond their ring": (lambda plane: _add(plane, 1 << 40), r"ring.h:\d+: not waiting <= r->capacity"),
    "flushed beyond the log": (
        lambda plane: setattr(plane.watermarks, "flushed_offset", 1 << 50),
        rf"flusher.c:\d+: not flushed <= append|{DISPATCH_MEETS_IT}",
    ),
    "dispatched beyond the log": (
        lambda plane: setattr(plane.watermarks, "dispatched_offset", 1 << 50), r"dispatcher.c:\d+: not done <= end",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "flush"), [*zip(STAYING, itertools.cycle(POLICIES))])
def test_a_plane_that_stays_broken_is_replaced(broken: Broken, name: str) -> None:
    plant, line = STAYING[name]
    process, start = broken.broker.process.pid, int(broken.plane.watermarks.start_id)
    plant(broken.plane)

    def is_new() -> bool:
        try:
            plane = Plane.open(plane_name(broken.broker.store))
        except (OSError, ValueError):
            return False
        return int(plane.watermarks.start_id) != start and plane.role(lib.RMQ_ROLE_READ).state == STATE_SERVING

    wait_until(is_new, "the store is opened with a new plane")
    broken.plane = Plane.open(plane_name(broken.broker.store))
    log = broken.broker.log_tail()
    assert re.search(line, log), "one of those that met it"
    assert "the same broken invariant twice within 10 s" in log
    assert broken.broker.process.pid == process, "the broker itself has gone on"
