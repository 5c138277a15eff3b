"""Every named crash point is hit once under load, and every promise is kept.

The points lie between two stores to shared memory (RMQ_CRASH in native/src). A test build of the C core has them; one
run of the broker is led through all: the test writes a point's name into a mapped file, the first worker that passes
the point clears the name and kills itself.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import ConsumeFrom, Consumer, Message, Producer, PullOptions, RingmqError
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.watermark import read_watermarks
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.drills.drill import Drill, Fault
from ringmq.loadtest.drills.load import BROKER
from ringmq.loadtest.drills.pop_load import POP_TOPIC
from ringmq.loadtest.drills.reads import TOPIC
from ringmq.loadtest.load.pops import Popper
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import PullSysFlag
from tests.ha.raw_slave import RawSlave, ha_port
from tests.native.test_crash_points import crash_build
from tests.suite.samples import Sampled
from tests.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(600)]
SOURCES = Path(__file__).resolve().parents[2] / "native" / "src"
NAME_BYTES = 64
ROLES = (
    lib.RMQ_ROLE_CONTROL, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_FLUSH, lib.RMQ_ROLE_DISPATCH, lib.RMQ_ROLE_READ,
    lib.RMQ_ROLE_DELAY, lib.RMQ_ROLE_SERVICES, lib.RMQ_ROLE_TRANSACTIONS, lib.RMQ_ROLE_TIMER,
    lib.RMQ_ROLE_POP,
)  # fmt: skip
# What this load cannot reach, and where it is hit instead.
ELSEWHERE = {
    "answerer-begins": "needs a dormant answerer; tests/native/ask_crash_cases.py",
    "answerer-begun": "needs a dormant answerer; tests/native/ask_crash_cases.py",
    "answerer-served": "needs a dormant answerer; tests/native/ask_crash_cases.py",
    "answerer-serves": "needs a dormant answerer; tests/native/ask_crash_cases.py",
    "dispatch-batch-unit": "BatchCQ topics are refused; tests/native/test_dispatcher.py",
    "dispatch-fault": "needs a failing disk; tests/native/test_dispatcher.py",
    "flush-fault": "needs a failing disk; tests/native/test_flusher.py",
    "dispatch-queue-min": "needs retention; tests/native/test_dispatcher.py",
    "control-filter-filled": "no load filters by SQL92; tests/native/crash_cases.py",
    "control-filter-published": "no load filters by SQL92; tests/native/crash_cases.py",
    "control-filter-withdrawn": "no load filters by SQL92; tests/native/crash_cases.py",
    "control-rules-begun": "no worker publishes rules yet; tests/native/crash_cases.py",
    "control-rules-counted": "no worker publishes rules yet; tests/native/crash_cases.py",
    "control-rules-filled": "no worker publishes rules yet; tests/native/crash_cases.py",
    "control-rules-published": "no worker publishes rules yet; tests/native/crash_cases.py",
    "control-tenure": "no load changes the role; tests/ha/receiver_crash_cases.py",
    "control-subscription-nameless": "needs a full table; tests/native/crash_cases.py",
    "control-subscription-unlinked": "needs a full table; tests/native/crash_cases.py",
    "journal-closed": "no broker changes its side yet; tests/ha/receiver_crash_cases.py",
    "journal-given": "no broker changes its side yet; tests/ha/receiver_crash_cases.py",
    "journal-let": "no broker changes its side yet; tests/ha/receiver_crash_cases.py",
    "pop-clamp-acked": "needs records that a power cut took; tests/pop/window_crash_cases.py",
    "pop-clamp-copied": "needs records that a power cut took; tests/pop/window_crash_cases.py",
    "pop-clamp-next-offset": "needs records that a power cut took; tests/pop/window_crash_cases.py",
    "pop-clamp-order": "needs records that a power cut took; tests/pop/window_crash_cases.py",
    "pop-copy-attempted": "needs a retry topic that refuses; tests/pop/window_crash_cases.py",
    "pop-copy-gone": "needs retention; tests/pop/window_crash_cases.py",
    "pop-copy-missed": "needs a retry topic that refuses; tests/pop/window_crash_cases.py",
    "pop-copy-withdrawn": "no load acknowledges late; tests/pop/window_crash_cases.py",
    "pop-cut-copied": "the main process does it in an ordered cut; tests/pop/window_crash_cases.py",
    "pop-cut-reviving": "the main process does it in an ordered cut; tests/pop/window_crash_cases.py",
    "pop-entry-in-log": "a stop does it, with messages open; tests/pop/window_crash_cases.py",
    "pop-given-again": "needs an answer that was not sent; tests/pop/window_crash_cases.py",
    "pop-order-ended": "needs 65,536 batches; tests/pop/window_crash_cases.py",
    "pop-order-returned": "needs an answer that was not sent; tests/pop/window_crash_cases.py",
    "pop-page-given-up": "needs a snapshot without memory; tests/pop/window_crash_cases.py",
    "pop-page-reopened": "needs a death before the snapshot is on disk; tests/pop/window_crash_cases.py",
    "pop-record-gone": "needs retention; tests/pop/window_crash_cases.py",
    "pop-start-freed": "needs a death at another point; tests/pop/window_crash_cases.py",
    "pop-start-move-done": "needs a death at another point; tests/pop/window_crash_cases.py",
    "pop-start-moved": "needs a death at another point; tests/pop/window_crash_cases.py",
    "pop-start-order": "needs a damaged batch; tests/pop/window_crash_cases.py",
    "pop-start-returned": "needs a death at another point; tests/pop/window_crash_cases.py",
    "pop-start-revived": "needs a death at another point; tests/pop/window_crash_cases.py",
    "pop-start-window": "needs a damaged window; tests/pop/window_crash_cases.py",
    "pop-window-marked": "needs a window without copies; tests/pop/window_crash_cases.py",
    "reader-poll-asked-again": "needs a poll at the death of its answerer; tests/native/held_crash_cases.py",
    "worker-activation-requested": "needs a dormant worker; tests/native/crash_cases.py",
}


POLICY_POINTS = ("write-", "dispatch-", "reader-completions-", "reader-request", "reader-unparked", "port-")
"""What these roles do depends on flushDiskType: when a send is answered, and when a record is readable."""
ENGINE_POINTS = ("reader-", "inbox-", "verdict-", "flush-")
OTHERS_OF_A_SAMPLE = 12
REPLICATION = ("receive-", "ha-")
"""Points of ha, on a slave and on a master: tests/ha/receiver_crash_cases.py, tests/native/ha_crash_cases.py."""
# Points that a worker passes only when it starts: it is killed once so that it does.
AT_START = {
    "journal-opened": "write", "pop-chunk-reserved": "pop", "port-acknowledged": "delay", "port-claimed": "delay",
    "reader-polls-emptied": "pop", "reader-started": "read-0",
}  # fmt: skip


def all_points() -> list[str]:
    text = "".join(path.read_text() for path in sorted(SOURCES.rglob("*.[ch]")))
    names = set(re.findall(r'RMQ_CRASH\("([a-z-]+)"\)', text))
    return sorted(name for name in names if not name.startswith(REPLICATION))


def request_points() -> list[str]:
    """Points of a port that has requests and completions; those of its commits are passed by `pop` alone."""
    return [name for name in all_points() if name.startswith("port-") and not name.startswith("port-commits-")]


class CrashDrill(Drill):
    """A drill whose faults are crash points, with a load that passes all of them."""

    def __init__(self, store: Path, settings: dict[str, object], library: Path, engine: str = "") -> None:
        self._file = store.with_name("crash-point")
        self._file.write_bytes(bytes(NAME_BYTES))
        environment = {"RINGMQ_NATIVE": str(library), "RINGMQ_CRASH_FILE": str(self._file)}
        if engine:
            environment["RINGMQ_ENGINE"] = engine
        self.missed: list[str] = []
        super().__init__(store, 0, settings, environment)

    def extra_load(self, producer: Producer, client: RemotingClient) -> list[Coroutine[Any, Any, None]]:
        return [
            self._batches(producer),
            self._without_waiting(producer),
            self._commits_by_pull(client),
            self._held_pulls(client),
            self._new_topics(producer),
            self._join_and_leave(),
            self._new_pop_groups(client),
        ]

    async def inject(self, fault: Fault) -> None:
        (name,) = fault.workers
        starts = self._starts()
        with self._file.open("r+b", buffering=0) as file:
            file.seek(1)
            file.write(name[1:].encode().ljust(NAME_BYTES - 1, b"\0"))
            file.seek(0)
            file.write(name[:1].encode())
            if name in AT_START:
                self.broker.signal_worker(AT_START[name], signal.SIGKILL)
            try:
                await until(lambda: self._file.read_bytes()[:1] == b"\0", f"{name} is hit")
            except AssertionError:
                self.missed.append(name)
                file.seek(0)
                file.write(b"\0")
                return
        await self._everybody_serves(starts)
        await self._dispatch_catches_up()

    def _starts(self) -> int:
        """How often workers have been started."""
        plane = Plane.open(plane_name(self.broker.store))
        return sum(int(plane.role(role).generation) for role in ROLES)

    async def _everybody_serves(self, starts: int) -> None:
        """The next point is armed only then: five deaths while starting would rightly end the broker. A dead worker's
        state says that it serves until the supervisor sees that it is dead, and starts another."""
        plane = Plane.open(plane_name(self.broker.store))
        await until(
            lambda: self._starts() > starts and all(plane.role(role).state == STATE_SERVING for role in ROLES),
            "the replacement serves, and all others",
        )

    async def _dispatch_catches_up(self) -> None:
        """Many points in a row are of dispatch. Without a pause its backlog would grow from one death to the next: what
        is acknowledged would be readable only seconds later, which some loads call a violation."""
        end = read_watermarks(self.broker.store).append_offset
        await until(lambda: read_watermarks(self.broker.store).dispatched_offset >= end, "dispatch has caught up")

    async def _batches(self, producer: Producer) -> None:
        while self.running:
            with contextlib.suppress(RingmqError, OSError):
                await producer.send_batch([Message("DrillBatch", b"%d" % number) for number in range(5)])
            await asyncio.sleep(0.002)  # span: the pace of the load

    async def _without_waiting(self, producer: Producer) -> None:
        """Sends that are answered at append under every policy."""
        while self.running:
            with contextlib.suppress(RingmqError, OSError):
                await producer.send(Message("DrillBatch", b"no wait", {"WAIT": "false"}))
            await asyncio.sleep(0.002)  # span: the pace of the load

    async def _commits_by_pull(self, client: RemotingClient) -> None:
        """A pull that carries an offset to commit, as stock push consumers send it; a new offset each time."""
        offset = 0
        while self.running:
            offset += 1
            header = {
                "consumerGroup": "drill_commits", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
                "maxMsgNums": "1", "sysFlag": str(int(PullSysFlag.COMMIT_OFFSET | PullSysFlag.SUBSCRIPTION)),
                "commitOffset": str(offset), "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            }  # fmt: skip
            with contextlib.suppress(RingmqError, OSError):
                request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
                await client.invoke(self.broker.address, request, timeout_ms=1000)
            await asyncio.sleep(0.005)  # span: the pace of the load

    async def _held_pulls(self, client: RemotingClient) -> None:
        """Pulls at the end of a busy queue: the next message arrives while they are held, however long the queue is."""
        queue = {"topic": "DrillBatch", "queueId": "0"}
        while self.running:
            with contextlib.suppress(RingmqError, OSError, KeyError):
                request = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, queue)
                answer = await client.invoke(self.broker.address, request, timeout_ms=1000)
                header = queue | {
                    "consumerGroup": "drill_held", "queueOffset": answer.ext_fields["offset"], "maxMsgNums": "1",
                    "sysFlag": str(int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION)), "commitOffset": "0",
                    "suspendTimeoutMillis": "500", "subscription": "*", "subVersion": "0",
                }  # fmt: skip
                request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
                await client.invoke(self.broker.address, request, timeout_ms=1000)
            await asyncio.sleep(0.005)  # span: the pace of the load

    async def _new_topics(self, producer: Producer) -> None:
        number = 0
        while self.running:
            number += 1
            with contextlib.suppress(RingmqError, OSError):
                await producer.send(Message(f"DrillNew{number % 20_000}", b"first"))
            await asyncio.sleep(0.02)  # span: the pace of the load

    async def _join_and_leave(self) -> None:
        """Groups that subscribe, hold pulls, commit offsets by pulls and go."""
        number = 0
        while self.running:
            number += 1
            with contextlib.suppress(RingmqError, OSError, TimeoutError):
                async with asyncio.timeout(1.0), Consumer(
                    "DrillBatch", self.broker.namesrv, f"drill{number % 500}", consume_from=ConsumeFrom.FIRST,
                    options=PullOptions(suspend_ms=300),
                ) as consumer:  # fmt: skip
                    async for _ in consumer.batches():
                        if not self.running:
                            break

    async def _new_pop_groups(self, client: RemotingClient) -> None:
        """Groups that pop for the first time: their windows are made."""
        number = 0
        while self.running:
            number += 1
            group = f"drill_windows{number % 2000}"
            popper = Popper(client, lambda: self.broker.address, BROKER, POP_TOPIC, group, timeout_ms=1000)
            with contextlib.suppress(RingmqError, OSError):
                for one in await popper.pop(1, 60_000):
                    await popper.ack(one.receipt)
            await asyncio.sleep(0.2)  # span: the pace of the load


def led_through(points: list[str], drill: CrashDrill) -> None:
    """Run the drill and judge it."""
    try:
        report = asyncio.run(drill.run([Fault("crash", (name,)) for name in points]))
    finally:
        drill.abandon()
    assert not drill.missed, f"never passed under this load: {drill.missed}"
    assert report.violations == [], report.text()
    assert report.counts["acknowledged"] > 100
    assert report.counts["delayed"] > 100
    assert report.counts["sent back"] > 5
    assert report.counts["transactions ended"] > 5


@pytest.mark.parametrize(
    ("flush", "engine"),
    [
        pytest.param("SYNC_FLUSH", "", id="SYNC_FLUSH"),
        pytest.param("ASYNC_FLUSH", "", id="ASYNC_FLUSH"),
        pytest.param("SYNC_FLUSH", "epoll", id="SYNC_FLUSH-epoll"),
    ],
)
def test_every_crash_point_is_survived(tmp_path: Path, flush: str, engine: str, sampled: Sampled) -> None:
    """Under ASYNC_FLUSH each point of the roles that act upon the policy, and a sample of the others. On epoll each
    point of the processes that have an engine, and a sample of the others."""
    points = [name for name in all_points() if name not in ELSEWHERE]
    if flush == "ASYNC_FLUSH":
        acting = [name for name in points if name.startswith(POLICY_POINTS)]
        others = [name for name in points if not name.startswith((*POLICY_POINTS, "flush-"))]
        points = acting + sampled(others, OTHERS_OF_A_SAMPLE)  # nothing waits for the completer then
    if "epoll" in (engine, os.environ.get("RINGMQ_ENGINE")):
        others = sampled([name for name in points if not name.startswith(ENGINE_POINTS)], OTHERS_OF_A_SAMPLE)
        points = [name for name in points if name.startswith(ENGINE_POINTS) or name in others]
    led_through(points, CrashDrill(tmp_path / "store", {"flushDiskType": flush}, crash_build(), engine))


def test_sends_that_wait_for_a_slave_survive_write_and_completer(tmp_path: Path) -> None:
    """They are parked without a flush to wait for; the slave's reports go on meanwhile."""
    points = [name for name in all_points() if name.startswith(("write-", "flush-")) and name not in ELSEWHERE]
    drill = CrashDrill(tmp_path / "store", {"brokerRole": "SYNC_MASTER"}, crash_build())
    with RawSlave(ha_port(drill.broker), comes_back=True) as slave:
        led_through(points, drill)
    assert slave.wrong is None


def test_the_exceptions_name_points_that_exist() -> None:
    assert set(ELSEWHERE) <= set(all_points())
