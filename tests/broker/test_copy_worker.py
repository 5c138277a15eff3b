"""A service by its row alone copies a queue exactly once and in order, whichever processes die and what is refused."""

import json
import os
import pickle
import random
import signal
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.republish_words import INHERITED, PROGRESS, REFUSED
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_broker_port, free_port
from ringmq.native import lib
from tests.broker.copy_worker import COPY, SOURCE, TARGET
from tests.conformance.wire import send_fields, shortened
from tests.drill.settings import SMALL_STORE
from tests.raw_client import SEND_BATCH, RawClient
from tests.staging import batch_body, bodies_of, make_topic
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.drill
ROOT = Path(__file__).parents[2]
ROUND, BATCH = 1200, 200
BATCH_FIELDS = shortened(send_fields(SOURCE, 0, {}, batch="true"))
WORKERS = {
    "copy": COPY.role, "write": lib.RMQ_ROLE_WRITE, "flush": lib.RMQ_ROLE_FLUSH, "control": lib.RMQ_ROLE_CONTROL,
    "dispatch": lib.RMQ_ROLE_DISPATCH, "read-0": lib.RMQ_ROLE_READ,
}  # fmt: skip
SPAN_S = 0.02
VICTIMS = (("copy",), ("write",), ("flush",), ("control",), ("copy", "write"), tuple(WORKERS))


class Copying:
    """A broker that copies Source to Target; `store` outlives it."""

    def __init__(self, folder: Path, policy: str) -> None:
        rows = folder / "copy.rows"
        rows.write_bytes(pickle.dumps([COPY]))
        self._prefix = [sys.executable, str(ROOT / "tests" / "broker" / "probe_worker.py"), str(rows)]
        self._settings = {**SMALL_STORE, "flushDiskType": policy}
        self._store = folder / "store"
        self._ports = {"port": free_broker_port(), "namesrv_port": free_port()}
        self.sent = 0
        self.start()
        for topic in (SOURCE, TARGET):
            make_topic(self.broker.address, topic, 1)
        self.wait_serving()

    def start(self) -> None:
        """The broker, once more after all its processes were killed."""
        self.broker = RunningBroker(
            self._store, self._settings, prefix=self._prefix, environment={"PYTHONPATH": str(ROOT)}, **self._ports
        )
        self.plane = Plane.open(plane_name(self._store))

    def wait_serving(self, dead: Sequence[int] = (0,)) -> None:
        """Until every worker serves, in none of these processes."""
        blocks = [self.plane.role(role) for role in WORKERS.values()]
        wait_until(lambda: all(block.state == STATE_SERVING and block.pid not in dead for block in blocks), "all serve")

    def send(self, records: int = ROUND) -> None:
        """Records into Source, whose bodies are their numbers."""
        with RawClient(self.broker.address) as client:
            for first in range(self.sent, self.sent + records, BATCH):
                rows = [b"%08d" % number for number in range(first, first + BATCH)]
                assert client.ask(SEND_BATCH, BATCH_FIELDS, batch_body(rows)).code == 0
        self.sent += records

    def inject_fault(self, victims: tuple[str, ...], chance: random.Random, stopped: str = "") -> None:
        """Kill these workers while records are on their way, and wait for their replacements. `stopped`: a worker that
        stands still meanwhile, behind copies that wait for the disk."""
        time.sleep(chance.random() * SPAN_S)  # a span before the fault, drawn from the seed
        if stopped:
            self.send_while_stopped(stop=stopped)
            wait_until(lambda: self.plane.header.ports.parked.head > self.plane.header.ports.parked.tail, "some wait")
        pids = [int(self.plane.role(WORKERS[name]).pid) for name in victims]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.wait_serving(dead=pids)
        if stopped:
            turns = self.plane.role(COPY.role).progress
            wait_until(lambda: self.plane.role(COPY.role).progress > turns + 2, "the replacement looks at its port")
            self.broker.signal_worker(stopped, signal.SIGCONT)

    def send_while_stopped(self, *, held: bool = False, stop: str = "") -> None:
        """Records that the copying worker, stopped meanwhile, finds all at once. `held`: writes are held behind them,
        as for a slave whose log is longer, and copies are refused. `stop`: this worker is stopped behind them."""
        self.broker.signal_worker("copy", signal.SIGSTOP)
        self.send()
        refused = self.word(REFUSED)
        self.plane.watermarks.write_hold = lib.RMQ_HOLD_LONGER_SLAVE if held else 0
        if stop:
            self.broker.signal_worker(stop, signal.SIGSTOP)
        self.broker.signal_worker("copy", signal.SIGCONT)
        if held:
            wait_until(lambda: self.word(REFUSED) > refused, "a copy is refused")

    def strand(self) -> None:
        """Kill the copying worker when write has answered it and it has not looked."""
        port = self.plane.header.ports.port[self.plane.port_of(COPY.role)]
        self.broker.signal_worker("copy", signal.SIGSTOP)
        self.send()
        self.broker.signal_worker("write", signal.SIGSTOP)
        self.broker.signal_worker("copy", signal.SIGCONT)
        wait_until(lambda: port.request.head > port.request.tail, "copies are submitted")
        pid = self.broker.signal_worker("copy", signal.SIGSTOP)
        self.broker.signal_worker("write", signal.SIGCONT)
        wait_until(lambda: any(ring.head > ring.tail for ring in (port.appended, port.completed)), "write has answered")
        assert pid
        os.kill(pid, signal.SIGKILL)
        self.wait_serving(dead=[pid])

    def word(self, number: int) -> int:
        """A word of the copying worker's role block."""
        return int(self.plane.role(COPY.role).counters[number])

    def check(self) -> None:
        """All is copied, once and in order, and the broker is well."""
        wait_until(lambda: self.word(PROGRESS) == self.sent + 1, "all is copied")
        wait_dispatched(self.broker.store)
        assert bodies_of(self.broker.address, TARGET, 1) == [b"%08d" % number for number in range(self.sent)]
        with urllib.request.urlopen(self.broker.metrics_url + "/health", timeout=60) as answer:
            health = json.loads(answer.read())
        assert health["alive"] and not [why for why in health["degraded"] if "keeps dying" not in why]
        assert self.broker.stop() == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("policy", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_record_once_and_in_order_over_kills_and_refusals(tmp_path: Path, policy: str) -> None:
    chance, copying = random.Random(f"25 {policy}"), Copying(tmp_path, policy)  # a seed with both kinds of holds
    try:
        for victims in chance.sample(VICTIMS, len(VICTIMS)):
            is_held = "control" not in victims and chance.random() < 0.4  # control's replacement keeps a hold
            copying.send_while_stopped(held=is_held)
            if is_held and chance.random() < 0.5:
                copying.plane.watermarks.write_hold = 0
            copying.inject_fault(victims, chance)
            copying.plane.watermarks.write_hold = 0
        copying.strand()
        if policy == "SYNC_FLUSH":
            copying.inject_fault(("copy",), chance, stopped="flush")
        wait_until(lambda: copying.word(INHERITED) > 0, "replacements have found completions of dead predecessors")
        assert copying.word(REFUSED) > 0
        copying.check()
    finally:
        copying.broker.close()


def test_each_record_once_and_in_order_over_losses_of_the_plane(tmp_path: Path) -> None:
    """The supervisor is killed, too: the marks on disk say how far the copies have come."""
    chance, copying = random.Random(27), Copying(tmp_path, "SYNC_FLUSH")
    try:
        for _ in range(3):
            copying.send_while_stopped()
            time.sleep(chance.random() * SPAN_S)  # a span before the fault, drawn from the seed
            copying.broker.kill_all()
            copying.start()
            copying.wait_serving()
        copying.check()
    finally:
        copying.broker.close()
