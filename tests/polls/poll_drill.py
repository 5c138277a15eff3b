"""Kills and stops processes of a broker whose test worker holds polls, then checks every poll and every message.

python -m tests.polls.poll_drill --seed 1 --faults 200 [--connections 100 --depth 100] [--engine epoll]
"""

import argparse
import os
import pickle
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.message import decode_messages
from tests.conformance.wire import send_fields, shortened
from tests.polls.poll_checker import FREE_NS, LATE_NS, Findings, PollChecker, read_notes
from tests.polls.poll_core import QUEUES, lane_number
from tests.polls.poll_load import LoadPlan, PollLoad
from tests.polls.poll_worker import FIRST_WORD, FULL_WORD, NOTES, POLLS
from tests.raw_client import SEND_BATCH, RawClient
from tests.staging import batch_body, make_topic
from tests.waiting import wait_dispatched, wait_until

ROOT = Path(__file__).parents[2]
TOPIC = "PollSource"
BODY = b"x" * 4000
BATCH, BATCHES = 12, 75
"""Of a burst: more than three files of the log."""
BURST_S = 8.0
"""The supervisor kills a worker that stands still for 20 s."""
SPAN_S = 0.4
STOPPED_S = 0.5
ANSWERED_S = 120.0
MS = 1_000_000
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "maxMessageSize": 65_536,
    "ringmqReaders": 1,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "fileReservedTime": 1,
    "cleanResourceInterval": 100,
}
"""Small files, which retention deletes once they look old."""
WORKERS = {"polls": POLLS.role, "read-0": lib.RMQ_ROLE_READ, "dispatch": lib.RMQ_ROLE_DISPATCH}
FAULTS = (
    "worker", "worker", "reader", "dispatch", "both", "half", "abort", "stop", "stop-half", "killed", "old",
    "overtake", "gone",
)  # fmt: skip


class Sender(threading.Thread):
    """Sends messages to all queues in turn until `end`, again on a new connection if one ends."""

    def __init__(self, address: str, per_s: float) -> None:
        super().__init__(daemon=True)
        self._address, self._pause_s, self._end = address, 1 / per_s, threading.Event()
        self.sent = 0

    def run(self) -> None:
        """Connect and send, again and again."""
        while not self._end.wait(self._pause_s):
            try:
                with RawClient(self._address, timeout_s=10) as client:
                    while not self._end.wait(self._pause_s):
                        self.sent += client.send(TOPIC, BODY, self.sent % QUEUES).code == 0
            except (OSError, AssertionError):
                continue  # a worker was killed

    def end(self) -> None:
        """Send nothing more."""
        self._end.set()
        if self.is_alive():
            self.join()


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else 0.0


@dataclass
class Figures:
    """What one drill has done and found."""

    polls_held: int
    faults_injected: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    files_deleted: int = 0
    rings_full: int = 0
    """How often the worker had no room for an answer."""
    overtaken: int = 0
    """How often retention was ahead of the worker."""
    stalls: int = 0
    """Rounds of the client that were so long that they delayed what it measures. Nothing is late meanwhile."""
    stalled_s: float = 0.0
    closed_by_broker: int = 0
    alone_p99_us: float = 0.0
    beside_p99_us: float = 0.0
    found: Findings = field(default_factory=Findings)

    @property
    def is_good(self) -> bool:
        """Something was received, and nothing is wrong."""
        return self.found.received > 0 and not self.found.fault_count

    def __str__(self) -> str:
        found, ratio = self.found, self.beside_p99_us / self.alone_p99_us if self.alone_p99_us else 0.0
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults_injected.items()))
        lines = [
            f"{self.polls_held:,} held polls; faults: {faults or 'none'}; {self.messages:,} messages, "
            f"{self.files_deleted} log files deleted, retention overtook {self.overtaken} times, "
            f"no room in a ring {self.rings_full:,} times",
            f"polls: {found.polls:,}, answers by code {found.answers}, {found.given_up} of ended connections, "
            f"{found.early} early, {found.late} late, the latest {found.latest_ms:.0f} ms behind its deadline, half of "
            f"them within {_percentile(found.late_ms, 50):.0f} ms, 99 % within {_percentile(found.late_ms, 99):.0f} ms",
            f"answers with messages: {found.named:,} named, {found.received:,} received, {found.freed} taken back "
            f"({found.freed_late} late, the latest after {found.freed_latest_ms:.0f} ms), {found.expired} not "
            f"acknowledged, {found.died_with_worker} died with the worker, {found.died_with_reader} with a reader, "
            f"{found.cut_off} cut off; {found.again} messages came again",
            f"requests that are answered at once: p99 {self.alone_p99_us:.0f} us alone, {self.beside_p99_us:.0f} us "
            f"beside polls, ratio {ratio:.2f}; {self.stalls} stalls of the client, "
            f"{self.stalled_s:.1f} s",
            f"{found.fault_count} faults found",
        ]
        return "\n".join([*lines, *(f"  {fault}" for fault in found.faults)])


def start_broker(folder: Path, settings: Mapping[str, object], environment: Mapping[str, str]) -> RunningBroker:
    """A broker that has the test worker."""
    rows = folder / "polls.rows"
    rows.write_bytes(pickle.dumps([POLLS]))
    prefix = [sys.executable, str(ROOT / "tests" / "broker" / "probe_worker.py"), str(rows)]
    return RunningBroker(
        folder / "store", settings, prefix=prefix, environment={"PYTHONPATH": str(ROOT), **environment}
    )


class PollDrill:
    """A broker with the test worker, its load, and faults. The plan of faults depends on the seed alone."""

    def __init__(
        self,
        folder: Path,
        plan: LoadPlan,
        seed: int,
        *,
        settings: dict[str, object] | None = None,
        per_s: float = 200,
        checker: PollChecker | None = None,
    ) -> None:
        self._notes = folder / "notes"
        self._chance, self._plan = random.Random(seed), plan
        held = {"ringmqHeldPollsMax": plan.connections * plan.depth}
        self.broker = start_broker(folder, SETTINGS | held | (settings or {}), {NOTES: str(self._notes)})
        self.plane = Plane.open(plane_name(self.broker.store))
        self.figures = Figures(plan.connections * plan.depth)
        self.checker = checker or PollChecker()
        self._back_ns: list[int] = []
        try:
            make_topic(self.broker.address, TOPIC, plan.queues)
            self.wait_serving()
        except BaseException:
            self.broker.close()
            raise
        self.load = PollLoad(self.broker.address, plan, self.checker, seed)
        self._sender = Sender(self.broker.address, per_s)
        self.load.start()

    def close(self) -> None:
        """End the load and the broker."""
        try:
            self._sender.end()
            self.load.end()
        finally:
            self.broker.close()

    def begin(self, probe_s: float = 0.0) -> None:
        """Measure requests alone, hold all polls, measure again, send messages."""
        self.figures.alone_p99_us = self._probe(probe_s)
        self.load.ask()
        self.wait_held()
        self.figures.beside_p99_us = self._probe(probe_s)
        self._sender.start()

    def _probe(self, seconds: float) -> float:
        began_ns = time.monotonic_ns()
        time.sleep(seconds)  # span: requests are measured meanwhile
        found = [(at_ns - sent_ns) / 1000 for sent_ns, at_ns in list(self.load.probes) if sent_ns >= began_ns]
        return _percentile(found, 99)

    # -- what the broker does ------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Polls that the read worker holds."""
        return int(self.plane.role(lib.RMQ_ROLE_READ).counters[lib.RMQ_READ_HELD])

    @property
    def has_taken_back(self) -> bool:
        """True if the worker has noted an answer that no client received."""
        named, _ = read_notes(self._notes.read_text().splitlines())
        return any(one.why in ("unsent", "reader") for one in named.values())

    def wait_held(self, part: float = 0.95) -> None:
        """Until nearly all polls are held."""
        wait_until(lambda: self.held >= part * self.figures.polls_held, "the polls are held", state=lambda: self.held)

    def wait_serving(self, dead: Sequence[int] = (0,)) -> None:
        """Until every worker serves, in none of these processes."""
        blocks = [self.plane.role(role) for role in WORKERS.values()]
        wait_until(lambda: all(block.state == STATE_SERVING and block.pid not in dead for block in blocks), "all serve")

    def wait_sent(self, count: int) -> None:
        """Until so many messages are sent."""
        wait_until(lambda: self._sender.sent >= count, "messages are sent")

    # -- faults --------------------------------------------------------------------------------------------

    def inject(self, kind: str = "") -> None:
        """One fault, a span after the one before."""
        time.sleep(self._chance.random() * SPAN_S)  # span: drawn from the seed, so faults meet any state
        drawn = self._chance.choice(FAULTS)
        kind = kind or drawn
        faults: dict[str, Callable[[], None]] = {
            "worker": lambda: self.kill("polls"),
            "reader": lambda: self.kill("read-0"),
            "dispatch": lambda: self.kill("dispatch"),
            "both": lambda: self.kill("polls", "read-0"),
            "half": lambda: self.load.vanish(self._chance.randint(1, 5), is_exact=True),
            "abort": lambda: self.load.vanish(self._chance.randint(1, 5), is_exact=False),
            "stop": self.stop_reader,
            "killed": lambda: self.stop_reader(is_killed=True),
            "stop-half": lambda: self.stop_reader(vanish=self._chance.randint(1, 5)),
            "old": self.age_log,
            "overtake": lambda: self.answer_meanwhile(self.age_log),
            "gone": lambda: self.answer_meanwhile(self._vanish_many),
        }
        faults[kind]()
        self.figures.faults_injected[kind] = self.figures.faults_injected.get(kind, 0) + 1

    def _vanish_many(self) -> None:
        closing = self.load.closing
        self.load.vanish(self._plan.connections // 2, is_exact=True)
        wait_until(lambda: self.load.closing > closing, "connections are half closed")

    def kill(self, *names: str) -> None:
        """Kill workers at once. The test worker dies when all polls are held."""
        if "polls" in names:
            self.wait_held()
        pids = [int(self.plane.role(WORKERS[name]).pid) for name in names]
        generation = self.plane.role(lib.RMQ_ROLE_READ).generation
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if "read-0" in names:
            self._wait_reader(generation)
        self.wait_serving(dead=pids)

    def _wait_reader(self, generation: int) -> None:
        wait_until(lambda: self.plane.role(lib.RMQ_ROLE_READ).generation != generation, "another read worker")
        self._back_ns.append(time.monotonic_ns())

    def stop_reader(self, *, is_killed: bool = False, vanish: int = 0) -> None:
        """The read worker stands still, so its ring of answers fills. Meanwhile connections may end."""
        block = self.plane.role(lib.RMQ_ROLE_READ)
        pid, generation, began_ns = int(block.pid), block.generation, time.monotonic_ns()
        os.kill(pid, signal.SIGSTOP)
        self.load.vanish(vanish, is_exact=True)
        time.sleep(self._chance.random() * STOPPED_S)  # span: answers gather in the ring
        if is_killed:
            os.kill(pid, signal.SIGKILL)
            self._wait_reader(generation)
            self.wait_serving(dead=[pid])
        else:
            os.kill(pid, signal.SIGCONT)
        self.checker.disturbed(began_ns, time.monotonic_ns())

    def age_log(self) -> None:
        """Retention deletes all log files but the one that is written and the one behind it."""
        files = sorted((self.broker.store / "commitlog").iterdir())[:-2]
        for file in files:
            os.utime(file, (1, 1))
        wait_until(lambda: not any(file.exists() for file in files), "the log files are deleted")
        self.figures.files_deleted += len(files)

    def answer_meanwhile(self, act: Callable[[], None]) -> None:
        """Answers are on their way while `act` takes their records or their connections: the test worker stands still
        while messages come, and the read worker while the test worker names them."""
        worker, reader = (int(self.plane.role(WORKERS[name]).pid) for name in ("polls", "read-0"))
        os.kill(worker, signal.SIGSTOP)
        with RawClient(self.broker.address) as client:
            end_s = time.monotonic() + BURST_S
            for number in range(BATCHES):
                if time.monotonic() > end_s:
                    break
                fields = shortened(send_fields(TOPIC, number % self._plan.queues, {}, batch="true"))
                assert client.ask(SEND_BATCH, fields, batch_body([BODY] * BATCH)).code == 0
        wait_dispatched(self.broker.store)
        began_ns = time.monotonic_ns()
        os.kill(reader, signal.SIGSTOP)
        turns = self.plane.role(POLLS.role).progress
        os.kill(worker, signal.SIGCONT)
        wait_until(lambda: self.plane.role(POLLS.role).progress > turns + 2, "the worker has turned")
        act()
        os.kill(reader, signal.SIGCONT)
        self.checker.disturbed(began_ns, time.monotonic_ns())

    # -- the end -------------------------------------------------------------------------------------------

    def check(self) -> Figures:
        """Send nothing more, wait until all messages are received, and judge."""
        self._sender.end()
        wait_dispatched(self.broker.store)
        wait_until(lambda: not self._missing_lanes(), "all messages are received", state=lambda: self._missing_lanes())
        self.load.rest()
        wait_until(
            lambda: not self.load.open_polls, "all polls are answered", ANSWERED_S, state=lambda: self.load.open_polls
        )
        figures = self.figures
        figures.stalls, figures.closed_by_broker = self.load.stalls, self.load.closed_by_broker
        figures.stalled_s = self.load.stalled_ns / 1e9
        self.load.end()
        named, figures.overtaken = read_notes(self._notes.read_text().splitlines())
        figures.rings_full = int(self.plane.role(POLLS.role).counters[FULL_WORD])
        generation = int(self.plane.role(POLLS.role).generation)
        figures.found = self.checker.finish(time.monotonic_ns(), named, generation, self._back_ns)
        self._check_messages()
        kills = sum(figures.faults_injected.get(kind, 0) for kind in ("reader", "both", "killed"))
        if figures.closed_by_broker and not kills:
            figures.found.fault(f"{figures.closed_by_broker} connections were closed by the broker")
        deaths = int(self.plane.role(POLLS.role).deaths)
        if deaths != (killed := sum(figures.faults_injected.get(kind, 0) for kind in ("worker", "both"))):
            ends = [line for line in self.broker.log_tail(1 << 20).splitlines() if "worker polls" in line]
            figures.found.fault(f"the test worker died {deaths} times, of which {killed} were kills: {ends[-3:]}")
        if status := self.broker.stop():
            figures.found.fault(f"the stop ended with status {status}")
        return figures

    def _queue(self, queue: int) -> tuple[int, int]:
        topic = self.plane.topic_find(TOPIC)
        slot = None if topic is None else self.plane.queue_find(topic, queue)
        assert slot is not None
        return int(self.plane.queue(slot).min_offset), int(self.plane.queue(slot).max_offset)

    def _lanes(self) -> list[tuple[int, int]]:
        """Each lane with its queue."""
        plan = self._plan
        return [(lane_number(f"polls-{of}", queue), queue) for of in range(plan.groups) for queue in range(plan.queues)]

    def _missing_lanes(self) -> list[int]:
        words = self.plane.role(POLLS.role).counters
        return [
            lane for lane, queue in self._lanes() if max(0, int(words[FIRST_WORD + lane]) - 1) < self._queue(queue)[1]
        ]

    def _check_messages(self) -> None:
        with RawClient(self.broker.address) as client:
            for lane, queue in self._lanes():
                low, high = self._queue(queue)
                self.figures.messages += high if lane < QUEUES else 0
                missing = self.checker.missing(lane, low, high)  # a queue's first offset follows the log's later
                if missing and _is_there(client, queue, missing[-1]):
                    self.figures.found.fault(f"lane {lane}: {len(missing)} messages not received, up to {missing[-1]}")


def _is_there(client: RawClient, queue: int, offset: int) -> bool:
    """True if retention has left the message."""
    answer = client.pull(TOPIC, queue, offset)
    return answer.code == 0 and decode_messages(answer.body)[0].queue_offset == offset


def run_drill(
    folder: Path,
    plan: LoadPlan,
    seed: int,
    faults: int,
    checker: PollChecker,
    settings: dict[str, object] | None = None,
) -> Figures:
    """So many faults, then the judgement."""
    with drilling(PollDrill(folder, plan, seed, settings=settings, checker=checker)) as drill:
        drill.begin(probe_s=3.0)
        for _ in range(faults):
            drill.inject()
        return drill.check()


def run_full(folder: Path, seed: int, checker: PollChecker, settings: dict[str, object] | None = None) -> Figures:
    """As many polls as one read worker holds: all are held, the worker is killed, all are held again and end in
    time."""
    plan = LoadPlan(TOPIC, 64, lib.RMQ_HELD_SLOTS // 64, wait_ms=(45_000, 55_000))
    with drilling(PollDrill(folder, plan, seed, settings=settings, per_s=20, checker=checker)) as drill:
        drill.begin(probe_s=3.0)
        drill.inject("worker")
        drill.wait_held(part=0.99)
        drill.wait_sent(2 * QUEUES)
        return drill.check()


@contextmanager
def drilling(drill: PollDrill) -> Iterator[PollDrill]:
    """Close the drill. If it cannot go on, the end of the broker's log and the polls that wait too long tell why."""
    try:
        yield drill
    except BaseException:
        overdue = drill.checker.overdue(time.monotonic_ns())
        print(drill.broker.log_tail(4000), drill.figures.faults_injected, file=sys.stderr)
        print(f"{len(overdue)} of {drill.load.open_polls} polls are overdue: {overdue[:20]}", file=sys.stderr)
        raise
    finally:
        drill.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a promise was broken, or nothing was received."""
    parser = argparse.ArgumentParser(prog="python -m tests.polls.poll_drill", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--depth", type=int, default=100, help="polls of each")
    parser.add_argument("--engine", help="property ringmqEngine of the broker")
    parser.add_argument("--no-full", action="store_true", help="without the second part: 65,536 polls")
    parser.add_argument("--late-ms", type=int, default=LATE_NS // MS, help="that an answer may be late; busy machine")
    parser.add_argument("--free-ms", type=int, default=FREE_NS // MS, help="until messages of a lost answer are free")
    chosen = parser.parse_args(arguments)
    settings: dict[str, object] = {"ringmqEngine": chosen.engine} if chosen.engine else {}
    plan = LoadPlan(TOPIC, chosen.connections, chosen.depth, wait_ms=(2000, 8000))
    print(f"seed {chosen.seed}", flush=True)
    parts: list[Figures] = []
    for is_full in (False,) if chosen.no_full else (False, True):
        checker = PollChecker(chosen.late_ms * MS, chosen.free_ms * MS)
        with tempfile.TemporaryDirectory(prefix="ringmq-polls-") as name:
            folder = Path(name)
            if is_full:
                parts.append(run_full(folder, chosen.seed, checker, settings))
            else:
                parts.append(run_drill(folder, plan, chosen.seed, chosen.faults, checker, settings))
        print(parts[-1], flush=True)
    return 0 if all(part.is_good for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
