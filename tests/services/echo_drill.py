"""Kills processes of a broker with the echo service under load, then counts what its target has too much or too little.

python -m tests.services.echo_drill --seed 1 --kills 200 [--policy ASYNC_FLUSH]
"""

import argparse
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import parts_of_mark
from ringmq.ipc.republish_words import INHERITED, PROGRESS, REFUSED
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_broker_port, free_port
from ringmq.native import lib
from ringmq.remoting.message import MessageExt
from tests.conformance.wire import send_fields, shortened
from tests.drill.settings import SMALL_STORE
from tests.raw_client import SEND_BATCH, RawClient
from tests.services.echo_service import DELAY_MS, ECHO, SOURCE, TARGET
from tests.staging import batch_body, make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until

ROOT = Path(__file__).parents[2]
POLICIES = ("ASYNC_FLUSH", "SYNC_FLUSH")
WORKERS = {
    "echo": ECHO.role, "write": lib.RMQ_ROLE_WRITE, "flush": lib.RMQ_ROLE_FLUSH, "control": lib.RMQ_ROLE_CONTROL,
    "dispatch": lib.RMQ_ROLE_DISPATCH, "read-0": lib.RMQ_ROLE_READ,
}  # fmt: skip
ROWS, ROWS_MAX = 20, 60
PAUSE_S = 0.02
SPAN_S = 0.3
FIELDS = shortened(send_fields(SOURCE, 0, {}, batch="true"))


class Sender(threading.Thread):
    """Sends numbered records into the source until `end`. What is not answered is not sent again."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address, self._end = address, threading.Event()
        self.acknowledged: set[int] = set()
        self.number = 0

    def run(self) -> None:
        """Connect and send, again and again."""
        chance = random.Random(0)
        while not self._end.wait(PAUSE_S):
            try:
                with RawClient(self._address, timeout_s=10) as client:
                    while not self._end.wait(PAUSE_S):
                        self._send(client, chance.randrange(ROWS, ROWS_MAX))
            except (OSError, AssertionError):
                continue  # a worker was killed

    def _send(self, client: RawClient, count: int) -> None:
        numbers = range(self.number, self.number + count)
        self.number += count
        if client.ask(SEND_BATCH, FIELDS, batch_body([b"%08d" % number for number in numbers])).code == 0:
            self.acknowledged.update(numbers)

    def end(self) -> None:
        """Send nothing more."""
        self._end.set()
        self.join()


@dataclass
class Figures:
    """What one drill has done and found."""

    policy: str
    kills: int = 0
    planes_lost: int = 0
    stops: int = 0
    refused: int = 0
    inherited: int = 0
    messages: int = 0
    lost_sends: int = 0
    duplicates: int = 0
    losses: int = 0
    order_violations: int = 0
    wrong_bodies: int = 0
    early: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Something was echoed, and nothing is wrong."""
        wrong = (self.lost_sends, self.duplicates, self.losses, self.order_violations, self.wrong_bodies, self.early)
        return self.messages > 0 and not any(wrong) and not self.faults

    def __str__(self) -> str:
        return (
            f"{self.policy}: {self.messages:,} messages, {self.kills} kills, {self.planes_lost} losses of the plane, "
            f"{self.stops} stops, {self.refused:,} refused requests, {self.inherited:,} inherited completions: "
            f"{self.duplicates} duplicates, {self.losses} losses, {self.order_violations} order violations, "
            f"{self.wrong_bodies} wrong bodies, {self.early} early, {self.lost_sends} lost sends"
            + "".join(f"\n  {fault}" for fault in self.faults)
        )


class EchoDrill:
    """A broker with the echo service under load. The plan depends on the seed and on the number of kills alone."""

    def __init__(self, folder: Path, policy: str, seed: int) -> None:
        rows = folder / "echo.rows"
        rows.write_bytes(pickle.dumps([ECHO]))
        self._prefix = [sys.executable, str(ROOT / "tests" / "broker" / "probe_worker.py"), str(rows)]
        self._settings = {**SMALL_STORE, "flushDiskType": policy}
        self._store, self._chance = folder / "store", random.Random(f"{seed} {policy}")
        self._ports = {"port": free_broker_port(), "namesrv_port": free_port()}
        self.figures = Figures(policy)
        self.start()
        for topic in (SOURCE, TARGET):
            make_topic(self.broker.address, topic, 1)
        self.wait_serving()
        self.sender = Sender(self.broker.address)
        self.sender.start()

    def start(self) -> None:
        """The broker, once more after it has ended."""
        self.broker = RunningBroker(
            self._store, self._settings, prefix=self._prefix, environment={"PYTHONPATH": str(ROOT)}, **self._ports
        )
        self.plane = Plane.open(plane_name(self._store))

    def close(self) -> None:
        """End the load and the broker."""
        self.sender.end()
        self.broker.close()

    def wait_serving(self, dead: Sequence[int] = (0,)) -> None:
        """Until every worker serves, in none of these processes."""
        blocks = [self.plane.role(role) for role in WORKERS.values()]
        wait_until(lambda: all(block.state == STATE_SERVING and block.pid not in dead for block in blocks), "all serve")

    def word(self, number: int) -> int:
        """A word of the service's role block."""
        return int(self.plane.role(ECHO.role).counters[number])

    # -- faults --------------------------------------------------------------------------------------------

    def inject_fault(self) -> None:
        """Inject one fault of the plan, a span after the one before."""
        time.sleep(self._chance.random() * SPAN_S)  # a span before the fault, drawn from the seed
        pairs = [("echo", other) for other in WORKERS if other != "echo"]
        match self._chance.choice(("one", "echo", "echo", "pair", "pair", "all", "held", "stranded", "plane", "stop")):
            case "one":
                self.kill(self._chance.choice(list(WORKERS)))
            case "echo":
                self.kill("echo")
            case "pair":
                self.kill(*self._chance.choice(pairs))
            case "all":
                self.kill(*WORKERS)
            case "held":
                self.hold()
            case "stranded":
                self.strand()
            case "plane":
                self.lose_plane()
            case "stop":
                self.stop()

    def kill(self, *names: str) -> None:
        """Kill workers at once."""
        pids = [int(self.plane.role(WORKERS[name]).pid) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.figures.kills += len(pids)
        self.wait_serving(dead=pids)

    def hold(self) -> None:
        """Writes are refused, as for a slave whose log is longer; in the middle of it the service or write dies."""
        refused = self.word(REFUSED)
        self.plane.watermarks.write_hold = lib.RMQ_HOLD_LONGER_SLAVE
        wait_until(lambda: self.word(REFUSED) > refused or not self._has_backlog(), "an echo is refused")
        self.kill(self._chance.choice(("echo", "write", "flush")))
        self.plane.watermarks.write_hold = 0

    def _has_backlog(self) -> bool:
        topic = self.plane.topic_find(SOURCE)
        slot = None if topic is None else self.plane.queue_find(topic, 0)
        return slot is not None and self.word(PROGRESS) - 1 < self.plane.queue(slot).max_offset

    def strand(self) -> None:
        """Kill the service when write has answered it and it has not looked: it stands still behind a submission."""
        port = self.plane.header.ports.port[self.plane.port_of(ECHO.role)]
        self.broker.signal_worker("write", signal.SIGSTOP)
        wait_until(lambda: port.request.head > port.request.tail or not self._has_backlog(), "an echo is submitted")
        pid = int(self.plane.role(ECHO.role).pid)
        os.kill(pid, signal.SIGSTOP)
        self.broker.signal_worker("write", signal.SIGCONT)
        wait_until(lambda: port.request.head == port.request.tail, "write has taken it")
        os.kill(pid, signal.SIGKILL)
        self.figures.kills += 1
        self.wait_serving(dead=[pid])

    def lose_plane(self) -> None:
        """Kill everything, the supervisor too, and start."""
        self.count_words()
        self.figures.kills += len(self.broker.worker_pids()) + 1
        self.figures.planes_lost += 1
        self.broker.kill_all()
        self.start()
        self.wait_serving()

    def stop(self) -> None:
        """A clean stop and a start."""
        self.count_words()
        self.figures.stops += 1
        if status := self.broker.stop():
            self.figures.faults.append(f"a stop ended with status {status}")
        self.start()
        self.wait_serving()

    def count_words(self) -> None:
        """Add the counts of this plane."""
        self.figures.refused += self.word(REFUSED)
        self.figures.inherited += self.word(INHERITED)

    # -- the end -------------------------------------------------------------------------------------------

    def check(self) -> Figures:
        """End the load, wait for the echoes, compare the target with the source."""
        self.sender.end()
        wait_dispatched(self.broker.store)
        wait_until(lambda: not self._has_backlog(), "all is echoed")
        wait_dispatched(self.broker.store)
        self.count_words()
        sent, echoes = (messages_of(self.broker.address, topic, 1) for topic in (SOURCE, TARGET))
        compare(self.figures, sent, echoes)
        self.figures.lost_sends = len(self.sender.acknowledged - {int(message.body) for message in sent})
        if status := self.broker.stop():
            self.figures.faults.append(f"the last stop ended with status {status}")
        return self.figures


def compare(figures: Figures, sent: Sequence[MessageExt], echoes: Sequence[MessageExt]) -> None:
    """Count what is wrong with the echoes of the records that were sent. The mark of an echo names its source."""
    offsets = [parts_of_mark(echo.prepared_transaction_offset)[2] for echo in echoes]
    figures.messages = len(echoes)
    figures.duplicates = len(offsets) - len(set(offsets))
    figures.losses = len(set(range(len(sent))) - set(offsets))
    figures.order_violations = sum(second < first for first, second in pairwise(offsets))
    pairs = [(sent[offset] if offset < len(sent) else None, echo) for offset, echo in zip(offsets, echoes, strict=True)]
    figures.wrong_bodies = sum(source is None or source.body != echo.body for source, echo in pairs)
    figures.early = sum(
        source is not None and echo.store_timestamp_ms < source.store_timestamp_ms + DELAY_MS for source, echo in pairs
    )


def run_drill(folder: Path, policy: str, seed: int, kills: int) -> Figures:
    """So many kills at least, then the comparison."""
    drill = EchoDrill(folder, policy, seed)
    try:
        while drill.figures.kills < kills:
            drill.inject_fault()
        return drill.check()
    finally:
        drill.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a promise was broken, or nothing was echoed."""
    parser = argparse.ArgumentParser(prog="python -m tests.services.echo_drill", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--policy", choices=POLICIES, action="append", help="both when left out")
    chosen = parser.parse_args(arguments)
    print(f"seed {chosen.seed}", flush=True)
    good = True
    for policy in chosen.policy or POLICIES:
        with tempfile.TemporaryDirectory(prefix="ringmq-echo-") as folder:
            figures = run_drill(Path(folder), policy, chosen.seed, chosen.kills)
        print(figures, flush=True)
        good &= figures.is_good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
