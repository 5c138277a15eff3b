"""Answers of the test worker that name records beside our own pulls, and what 10,000 held polls cost.

python -m tests.polls.poll_bench [--rounds 5] [--seconds 5] [--polls 10000]

The clients of both are this program in a process of its own, so that only the broker differs. The worker is Python.
"""

import argparse
import json
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.process_stats import busy_seconds, resident_anonymous_bytes
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.measuring.command import Command, Options
from ringmq.loadtest.measuring.measurement import RINGMQ, Measurement, goals
from ringmq.loadtest.measuring.rounds import Row, Session, Turn, rotated
from ringmq.loadtest.measuring.tables import Column, rounds_tables
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, SerializeType, encode_frame
from ringmq.remoting.heartbeat import HeartbeatData
from tests.conformance.wire import send_fields, shortened
from tests.polls.poll_checker import PollChecker
from tests.polls.poll_drill import ROOT, start_broker
from tests.polls.poll_load import LoadPlan, PollLoad
from tests.polls.poll_wire import FOUND, ack_request, poll_request, with_opaque
from tests.polls.poll_worker import POLLS
from tests.raw_client import PULL, SEND_V2, RawClient, pull_fields
from tests.staging import make_topic
from tests.waiting import wait_dispatched, wait_until

TOPIC, EMPTY, QUEUES, BODY = "PollBench", "PollEmpty", 8, b"x" * 1024
CONNECTIONS, DEPTH, MESSAGES = 16, 4, 32
IN_FLIGHT = 64
CLIENT = "--client"
SETTINGS: dict[str, object] = {"ringmqReaders": 1, "mappedFileSizeCommitLog": 1 << 28, "diskMaxUsedSpaceRatio": 95}
READER = lib.RMQ_ROLE_READ
ANSWERS = Row("answers", "polls beside pulls", "ratio", "of pulls", goals("ratio >=0.7, cpu_ratio <=1.15"))
ANSWER_COLUMNS = (
    Column("Pulls/s", "pulls_per_s"),
    Column("Polls/s", "polls_per_s"),
    Column("Ratio", "ratio", "{:.2f}"),
    Column("Reader, us a pull", "pull_us", "{:.1f}"),
    Column("us a poll", "poll_us", "{:.1f}"),
    Column("Ratio", "cpu_ratio", "{:.2f}"),
    Column("Bytes an answer", "bytes"),
    Column("of them through the ring", "ring_bytes"),
    Column("messages sent from the log", "named", "{:.1f}"),
)
HELD = Row(
    "held", "small requests beside held polls", "beat_ratio", "of those alone",
    goals("beat_ratio <=1.1, ack_ratio <=1.1, reader_bytes <=1024, worker_bytes <=1024"),
)  # fmt: skip
HELD_COLUMNS = (
    Column("Heartbeat alone, p99 us", "beat_alone"),
    Column("Ack alone", "ack_alone"),
    Column("Heartbeat beside", "beat_beside"),
    Column("Ack beside", "ack_beside"),
    Column("Ratio", "beat_ratio", "{:.2f}"),
    Column("Ratio", "ack_ratio", "{:.2f}"),
    Column("Reader, bytes a poll beside its frame", "reader_bytes"),
    Column("Worker", "worker_bytes"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """What a client does: `kind` is polls or pulls."""

    kind: str
    address: str
    seconds: float
    records: int
    """Of each queue."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One client's run. CPU is the read worker's, ring bytes are those of the answerer's ring."""

    answers: int
    bytes: int
    seconds: float
    cpu_s: float = 0.0
    named: int = 0
    ring_bytes: int = 0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds

    @property
    def cpu_us(self) -> float:
        """Of an answer."""
        return self.cpu_s / self.answers * 1e6


# -- the client ------------------------------------------------------------------------------------------------


def frames_of(task: Task, number: int) -> Iterator[bytes]:
    """Requests of one connection without end."""
    queue = number % QUEUES
    if task.kind == "polls":
        frame = poll_request(0, f"polls-{number // QUEUES}", TOPIC, queue, 0, again=True)
        while True:
            yield frame
    frames = []
    for offset in range(0, task.records - MESSAGES + 1, MESSAGES):
        fields = {name: str(value) for name, value in pull_fields(TOPIC, queue, offset, maxMsgNums=MESSAGES).items()}
        frames.append(encode_frame(RemotingCommand.request(PULL, fields, b"", serialize_type=SerializeType.ROCKETMQ)))
    while True:
        yield from frames


def run_client(task: Task) -> tuple[int, int]:
    """Keep DEPTH requests on each of CONNECTIONS. Returns the answers with messages, and the bytes of all."""
    host, port = task.address.rsplit(":", 1)
    selector, opaque = selectors.EpollSelector(), 0
    for number in range(CONNECTIONS):
        made = socket.create_connection((host, int(port)))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = frames_of(task, number)
        made.sendall(b"".join(with_opaque(next(frames), depth) for depth in range(DEPTH)))
        selector.register(made, selectors.EVENT_READ, (made, frames, bytearray()))
    answers = received = 0
    end = time.monotonic() + task.seconds
    while time.monotonic() < end:
        for key, _ in selector.select(0.1):
            client, frames, buffer = key.data
            buffer += client.recv(1 << 20)
            requests, at = [], 0
            while len(buffer) - at >= 4 and len(buffer) - at >= (size := 4 + int.from_bytes(buffer[at : at + 4])):
                code = int.from_bytes(buffer[at + 8 : at + 10])
                answers += code == FOUND and size > MESSAGES * len(BODY)
                received += size
                at += size
                opaque = (opaque + 1) & 0x7FFFFFFF
                requests.append(with_opaque(next(frames), opaque))
            del buffer[:at]
            if requests:
                client.sendall(b"".join(requests))
    return answers, received


# -- the broker ------------------------------------------------------------------------------------------------


def fill(address: str, records: int) -> None:
    """Single sends, many under way, so that the records of a queue do not lie one behind the other."""
    make_topic(address, TOPIC, QUEUES)
    with RawClient(address) as client:
        waiting = 0
        for number in range(records * QUEUES):
            client.send_request(SEND_V2, shortened(send_fields(TOPIC, number % QUEUES, {})), BODY)
            waiting += 1
            while waiting >= IN_FLIGHT or (waiting and number == records * QUEUES - 1):
                answer = client.receive()
                assert answer is not None and answer.code == 0, answer
                waiting -= 1


def measure(plane: Plane, task: Task) -> Sample:
    """One run of a client, with what the read worker and the ring did meanwhile."""
    ring = plane.header.asks.answerer[int(lib.rmq_answerer_find(plane.struct, POLLS.role))].answers[READER]
    role = plane.role(READER)
    before = busy_seconds([int(role.pid)]), int(role.counters[lib.RMQ_READ_NAMED_MESSAGES]), int(ring.head)
    command = [sys.executable, "-m", "tests.polls.poll_bench", CLIENT, json.dumps(asdict(task))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=task.seconds + 60)
    answers, received = json.loads(done.stdout)
    after = busy_seconds([int(role.pid)]), int(role.counters[lib.RMQ_READ_NAMED_MESSAGES]), int(ring.head)
    cpu_s, named, ring_bytes = (last - first for first, last in zip(before, after, strict=True))
    return Sample(answers, received, task.seconds, cpu_s, int(named), int(ring_bytes))


def measure_answers(broker: RunningBroker, plane: Plane, number: int, seconds: float, records: int) -> Measurement:
    """Polls and pulls, one behind the other. Every message of an answer is sent from the mapped log: 0 bytes of bodies
    are copied, if MESSAGES an answer are and the ring has less than a body."""
    kinds = rotated(("pulls", "polls"), number)
    found = {kind: measure(plane, Task(kind, broker.address, seconds, records)) for kind in kinds}
    polls, pulls = found["polls"], found["pulls"]
    answers = max(1, polls.answers)
    values = {
        "pulls_per_s": pulls.rate, "polls_per_s": polls.rate, "ratio": polls.rate / pulls.rate,
        "pull_us": pulls.cpu_us, "poll_us": polls.cpu_us, "cpu_ratio": polls.cpu_us / pulls.cpu_us,
        "bytes": polls.bytes / answers, "ring_bytes": polls.ring_bytes / answers, "named": polls.named / answers,
    }  # fmt: skip
    return Measurement(values)


def p99_us(ask: Callable[[int], object], seconds: float) -> float:
    """Of requests that are asked one by one."""
    found: list[float] = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        ask(len(found))
        found.append((time.monotonic() - began) * 1e6)
    return statistics.quantiles(found, n=100)[98] if len(found) > 1 else 0.0


def small_requests(address: str, seconds: float) -> tuple[float, float]:
    """p99 of heartbeats and of requests like an acknowledgement, in us."""
    beat = HeartbeatData("poll-bench", consumers=[]).encode()
    with RawClient(address) as client:
        beats = p99_us(lambda _: client.ask(RequestCode.HEART_BEAT, {}, beat), seconds)

        def ack(number: int) -> None:
            client.send_bytes(ack_request(number, (0, 0)))
            assert client.receive() is not None

        return beats, p99_us(ack, seconds)


@dataclass
class HeldPolls:
    """Memory of held polls, and small requests beside them and alone, in turn."""

    broker: RunningBroker
    plane: Plane
    polls: int
    seconds: float
    memory: tuple[float, float] | None = None
    """Bytes a poll of reader and worker. Later rounds use the memory of the first one again."""

    def measure(self) -> Measurement:
        """One round."""
        pids = [int(self.plane.role(role).pid) for role in (READER, POLLS.role)]
        counters = self.plane.role(READER).counters
        plan = LoadPlan(EMPTY, 100, self.polls // 100, 1, QUEUES, (600_000, 600_000), probes_per_s=0, first_group=2)
        frame_bytes = len(poll_request(0, "polls-2", EMPTY, 0, 600_000, 1000))
        alone = small_requests(self.broker.address, self.seconds)
        before = [resident_anonymous_bytes(pid) for pid in pids]
        load = PollLoad(self.broker.address, plan, PollChecker())
        load.start()
        load.ask()
        wait_until(lambda: counters[lib.RMQ_READ_HELD] == self.polls // 100 * 100, "the polls are held")
        reader, worker = (resident_anonymous_bytes(pid) - size for pid, size in zip(pids, before, strict=True))
        self.memory = self.memory or (reader / self.polls - frame_bytes, worker / self.polls - frame_bytes)
        beside = small_requests(self.broker.address, self.seconds)
        load.end()
        wait_until(lambda: counters[lib.RMQ_READ_HELD] == 0, "the connections are closed")
        values = {"reader_bytes": self.memory[0], "worker_bytes": self.memory[1]}
        for name, early, late in zip(("beat", "ack"), alone, beside, strict=True):
            values |= {f"{name}_alone": early, f"{name}_beside": late, f"{name}_ratio": late / early}
        return Measurement(values)


def options_of(parser: argparse.ArgumentParser) -> None:
    """Add the options of this bench."""
    parser.add_argument("--records", type=int, default=8000, help="of each of 8 queues")
    parser.add_argument("--polls", type=int, default=10_000)


@contextmanager
def opened(options: Options) -> Iterator[Session]:
    """Yield the rounds on a broker whose records are filled in."""
    with tempfile.TemporaryDirectory(prefix="ringmq-poll-bench-") as name:
        broker = start_broker(Path(name), SETTINGS, {})
        try:
            plane = Plane.open(plane_name(broker.store))
            fill(broker.address, options.records)
            make_topic(broker.address, EMPTY, QUEUES)
            wait_dispatched(broker.store)
            wait_until(lambda: plane.role(POLLS.role).state == STATE_SERVING, "the worker serves")
            held = HeldPolls(broker, plane, options.polls, options.seconds)

            def turns(number: int) -> Generator[Turn, None, None]:
                step = partial(measure_answers, broker, plane, number, options.seconds, options.records)
                yield Turn(ANSWERS, RINGMQ, step)
                yield Turn(HELD, RINGMQ, held.measure)

            yield Session([ANSWERS, HELD], turns, options.rounds)
        finally:
            broker.close()


COLUMNS = {ANSWERS.name: ANSWER_COLUMNS, HELD.name: HELD_COLUMNS}
BENCH = Command(
    "python -m tests.polls.poll_bench", __doc__, "build/answers", opened, partial(rounds_tables, columns=COLUMNS),
    rounds=5, options=options_of,
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Print the tables, or be a client of them."""
    if arguments[:1] == [CLIENT]:
        print(json.dumps(run_client(Task(**json.loads(arguments[1])))))
        return 0
    return BENCH.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
