"""Nothing is readable before it is durable, on any path, while what makes it so hangs.

Sync flush: the sync itself (test build of the C core), or a stopped flush worker. Sync replication: a slave that takes
everything in and reports nothing. Two messages are on their way meanwhile: one whose producer waits, and one with
WAIT=false, which is answered at once and no more readable for it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import ConsumeFrom, PullOptions, blocking
from ringmq.ipc.watermark import Watermarks, read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.admin_bodies import TopicStats
from ringmq.remoting.message import decode_messages
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.conformance.wire import send_fields, shortened
from tests.drill.settings import SMALL_STORE
from tests.drill.sync_switch import SyncSwitch
from tests.ha.raw_slave import RawSlave, ha_port
from tests.raw_client import SEND_V2, RawClient, pull_fields
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
SEEN, FRESH = "Seen", "Fresh"
LITE_PULL, QUERY, SEARCH, MAX_OFFSET, EARLIEST, VIEW, TOPIC_STATS, UPDATE_TOPIC = 361, 12, 29, 30, 32, 33, 202, 17
NOT_FOUND, QUERY_NOT_FOUND = 19, 22
SUSPEND = 2 | 4  # with the pull's own subscription
FOREVER_MS = (1 << 62) - 1
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 120_000, **SMALL_STORE}
SYNC_MASTER = {
    "brokerRole": "SYNC_MASTER",
    "slaveTimeout": 120_000,
    "haHousekeepingInterval": 600_000,
    **SMALL_STORE,
}


class Scene:
    """A broker whose flush or slave hangs; `waiting` is the connection of the producer that has no answer."""

    def __init__(self, broker: RunningBroker, client: RawClient, waiting: RawClient) -> None:
        self.broker, self.client, self.waiting = broker, client, waiting
        self.before: Watermarks = read_watermarks(broker.store)
        self.during: Watermarks = self.before
        self.stalled_since_ms = 0
        self.offsets: list[int] = []

    def run_stalled(self) -> None:
        """Send two messages to each topic: one that waits, one that does not."""
        self.stalled_since_ms = int(time.time() * 1000)
        for topic in (SEEN, FRESH):
            at = read_watermarks(self.broker.store).append_offset
            self.offsets.append(at)
            self.waiting.send_request(SEND_V2, shortened(send_fields(topic, 0, {"KEYS": "late"})), b"late")
            wait_until(lambda at=at: read_watermarks(self.broker.store).append_offset > at, "it is appended")
            at = read_watermarks(self.broker.store).append_offset
            answer = self.client.send(topic, b"late too", pairs={"KEYS": "late", "WAIT": "false"})
            assert answer.code == 0, "WAIT=false is answered at append"
            assert int(answer.ext_fields["msgId"][-16:], 16) == at
            self.offsets.append(at)
        self.during = read_watermarks(self.broker.store)
        assert self.during.confirm_offset == self.before.append_offset < self.during.append_offset


# --- the paths: what each shows of a topic, as (bodies or offsets that must be those of durable messages) -------------


def pulled(scene: Scene, topic: str, code: int = 11) -> list[bytes]:
    answer = scene.client.ask(code, pull_fields(topic))
    if answer.code == NOT_FOUND:
        assert answer.ext_fields["maxOffset"] == "0"
        return []
    assert answer.code == 0
    found = [bytes(message.body) for message in decode_messages(answer.body)]
    assert int(answer.ext_fields["maxOffset"]) == len(found)
    return found


def lite_pulled(scene: Scene, topic: str) -> list[bytes]:
    return pulled(scene, topic, LITE_PULL)


def by_key(scene: Scene, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for key in ("durable", "late"):
        fields = {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": FOREVER_MS}
        answer = scene.client.ask(QUERY, fields)
        assert int(answer.ext_fields["indexLastUpdatePhyoffset"]) <= read_watermarks(scene.broker.store).confirm_offset
        if answer.code == 0:
            found += [bytes(message.body) for message in decode_messages(answer.body)]
        else:
            assert answer.code == QUERY_NOT_FOUND
    return found


def by_position(scene: Scene, topic: str) -> list[bytes]:
    found = []
    for offset in [0, *scene.offsets]:
        answer = scene.client.ask(VIEW, {"offset": offset})
        if answer.code == 0:
            found += [bytes(message.body) for message in decode_messages(answer.body) if message.topic == topic]
        else:
            assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
    return found


def through_spark(scene: Scene, topic: str) -> list[bytes]:
    options = parse_options({"store": str(scene.broker.store), "subscribePattern": topic})
    parts = plan_batch(open_catalog(options), options)
    batches = [batch for part in parts for batch in read_slice(part, ("value",), ReadSettings())]
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def through_the_sdk(scene: Scene, topic: str) -> list[bytes]:
    group = f"sdk_{time.monotonic_ns()}"
    options = PullOptions(suspend_ms=200)
    with blocking.Consumer(
        topic, scene.broker.namesrv, group, consume_from=ConsumeFrom.FIRST, options=options
    ) as consumer:
        found: list[bytes] = []
        shown = len(pulled(scene, topic))
        while messages := consumer.poll(timeout_ms=60_000 if len(found) < shown else 700):
            found += [bytes(message.body) for message in messages]
        return found


def command(scene: Scene, *arguments: str) -> str:
    line = [sys.executable, "-m", "ringmq.cli.main", "store", *arguments, "-o", "json", str(scene.broker.store)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inspected(scene: Scene, topic: str) -> list[bytes]:
    rows = [json.loads(line) for line in command(scene, "inspect", "--records", "--topic", topic).splitlines()]
    return [row["body"].encode() for row in rows]


def inspected_from_the_log(scene: Scene, topic: str) -> list[bytes]:
    rows = [json.loads(line) for line in command(scene, "inspect", "--records", "--limit", "100").splitlines()]
    return [row["body"].encode() for row in rows if row["topic"] == topic]


PATHS = [pulled, lite_pulled, by_key, by_position, through_spark, through_the_sdk, inspected, inspected_from_the_log]


def counts(scene: Scene, topic: str) -> dict[str, int]:
    """What is told about the queue's end, without bodies."""
    client, queue = scene.client, {"topic": topic, "queueId": 0}
    stats = TopicStats.decode(client.ask(TOPIC_STATS, {"topic": topic}).body).offsets
    (entry,) = [value for name, value in stats.items() if name.queue_id == 0]
    search = {**queue, "timestamp": scene.stalled_since_ms or FOREVER_MS}
    return {
        "max offset": int(client.ask(MAX_OFFSET, queue).ext_fields["offset"]),
        "topic stats": entry.max_offset,
        "search": int(client.ask(SEARCH, search).ext_fields["offset"]),
        "search for the end": int(client.ask(SEARCH, {**queue, "timestamp": FOREVER_MS}).ext_fields["offset"]),
    }


@contextmanager
def stopped_worker(broker: RunningBroker) -> Iterator[None]:
    pid = broker.signal_worker("flush", signal.SIGSTOP)
    assert pid is not None
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def silent(slave: RawSlave) -> Iterator[None]:
    slave.reports = False
    try:
        yield
    finally:
        slave.reports = True


def held_pull(scene: Scene, topic: str, offset: int, suspend_ms: int) -> RawClient:
    client = RawClient(scene.broker.address, timeout_s=30)
    fields = pull_fields(topic, 0, offset, sysFlag=SUSPEND, suspendTimeoutMillis=suspend_ms)
    client.send_request(11, fields)
    return client


@contextmanager
def stage(folder: Path, how: str) -> Iterator[tuple[RunningBroker, Callable[[], AbstractContextManager[Any]]]]:
    """A broker, and what makes it wait."""
    switch = SyncSwitch(folder)
    if how == "slave silent":
        with RunningBroker(folder / "store", SYNC_MASTER) as broker, RawSlave(ha_port(broker)) as slave:
            yield broker, lambda: silent(slave)
        return
    with RunningBroker(folder / "store", SYNC_FLUSH, environment=switch.environment) as broker:
        yield broker, switch.stalled if how == "sync hangs" else lambda: stopped_worker(broker)


@pytest.mark.parametrize("how", ["sync hangs", "worker stopped", "slave silent"])
def test_nothing_is_readable_before_it_is_durable(tmp_path: Path, how: str) -> None:
    with (
        stage(tmp_path, how) as (broker, stall),
        RawClient(broker.address) as client,
        RawClient(broker.address, timeout_s=60) as waiting,
    ):
        for topic in (SEEN, FRESH):
            made = client.ask(UPDATE_TOPIC, {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
            })  # fmt: skip
            assert made.code == 0
        durable = {"KEYS": "durable"}
        wait_until(lambda: client.send(SEEN, b"durable", pairs=durable).code == 0, "a slave counts, if one has to")
        scene = Scene(broker, client, waiting)
        wait_until(lambda: by_key(scene, SEEN) == [b"durable"], "the index has it")
        with stall():
            scene.run_stalled()
            held = held_pull(scene, SEEN, 1, 240_000)
            soon = held_pull(scene, SEEN, 1, 300)
            for path in PATHS:
                assert path(scene, SEEN) == [b"durable"], path.__name__
                assert path(scene, FRESH) == [], path.__name__
            assert set(counts(scene, SEEN).values()) == {1}, counts(scene, SEEN)
            assert set(counts(scene, FRESH).values()) == {0}, counts(scene, FRESH)
            assert client.ask(EARLIEST, {"topic": FRESH, "queueId": 0}).ext_fields["timestamp"] == "-1"
            upper = {"topic": SEEN, "queueId": 0, "timestamp": FOREVER_MS, "boundaryType": "upper"}
            assert client.ask(SEARCH, upper).ext_fields["offset"] == "0", "the last message that there is"
            facts = json.loads(command(scene, "inspect"))
            assert facts["live_owner"] and facts["readable_offset"] <= scene.before.confirm_offset
            assert sum(queue["messages"] for queue in facts["queues"] if queue["topic"] in (SEEN, FRESH)) == 1
            verified = json.loads(command(scene, "verify", "-q", "--no-cross-check"))
            assert (verified["records"], verified["units"], verified["errors"]) == (1, 1, 0)
            expired = soon.receive()
            assert expired is not None and expired.code == NOT_FOUND
            assert client.ask(11, pull_fields(SEEN, 0, 2)).code in (NOT_FOUND, 20, 21), "offset 2 is beyond the end"
            time.sleep(0.2)  # an observed span: a wrong answer to the held ones would be here by now
            assert held.is_open() and not has_answer(held)
            assert not has_answer(waiting), "the producer waits"
            assert read_watermarks(broker.store).confirm_offset == scene.before.confirm_offset
        for _ in (SEEN, FRESH):
            answer = waiting.receive()
            assert answer is not None and answer.code == 0
        woken = held.receive()
        assert woken is not None and woken.code == 0
        assert b"late" in [bytes(message.body) for message in decode_messages(woken.body)]
        for path in PATHS if how != "worker stopped" else [pulled]:
            for topic, known in ((SEEN, [b"durable"]), (FRESH, [])):
                expected = sorted([*known, b"late", b"late too"])
                wait_until(lambda p=path, t=topic, e=expected: sorted(p(scene, t)) == e, path.__name__)
        assert counts(scene, SEEN)["max offset"] == 3
        held.close()
        soon.close()
        assert broker.stop() == 0


def has_answer(client: RawClient) -> bool:
    """Whether bytes lie there to be read."""
    client.socket.setblocking(False)
    try:
        return bool(client.socket.recv(1, 2))  # MSG_PEEK
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(60)
