"""A full disk: writes are refused with the cause, reads go on, room makes writes possible again, nothing is lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import decode_messages
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from ringmq.store.verify import verify
from tests.drill.settings import SMALL_STORE
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.raw_client import RawClient
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made"),
]
DAY_MS = 86_400_000
SETTINGS = {
    **SMALL_STORE,
    "flushConsumerOffsetInterval": 50,
    "cleanResourceInterval": DAY_MS,  # retention would make room by deleting; it has a test of its own
}
LOG_ONLY = {**SETTINGS, "messageIndexEnable": False}
"""With few and large messages the log is what gets full: queue files are sparse, but their first block is there."""
LARGE = 60_000
LIMIT = 4000
NO_SPACE = os.strerror(28)
LOG_IS_FULL = f"the store refuses writes: no space left for the commit log: {NO_SPACE}"
QUEUE_IS_FULL = f"the store refuses writes: a consume queue or index file could not be written: {NO_SPACE}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 48) as mounted:
        yield mounted


def start(disk: Path, settings: dict[str, object]) -> RunningBroker:
    return RunningBroker(disk / "store", settings, log_path=disk.parent / "log")


def send_until_refused(client: RawClient, sent: list[bytes], size: int) -> RemotingCommand:
    """Send on until there is a refusal, which is returned; what is acknowledged goes into `sent`."""
    for _ in range(LIMIT):
        body = (b"%d" % len(sent)).ljust(size, b".")
        answer = client.send("Full", body, pairs={"KEYS": f"key{len(sent)}"})
        if answer.code != 0:
            return answer
        sent.append(body)
    raise AssertionError(f"{LIMIT} messages of {size} bytes were taken on a full disk")


def read_all(client: RawClient) -> list[bytes]:
    bodies: list[bytes] = []
    while (answer := client.pull("Full", 0, len(bodies))).code == 0:
        bodies += [bytes(message.body) for message in decode_messages(answer.body)]
    return bodies


def make_files(client: RawClient, sent: list[bytes]) -> None:
    """Send one message, so that the first file of each kind is there."""
    assert client.send("Full", b"0", pairs={"KEYS": "key0"}).code == 0
    sent.append(b"0")
    wait_until(lambda: read_all(client) == sent, "the first files are made")


def check(store: Path, settings: dict[str, object]) -> None:
    found = MessageStore(StoreConfig.from_properties(store, {name: str(value) for name, value in settings.items()}))
    report = verify(found, found.queue_end())
    assert (report.errors, report.findings) == (0, [])


@pytest.mark.parametrize(
    ("different", "size", "remark"),
    [
        pytest.param(LOG_ONLY, LARGE, LOG_IS_FULL, id="log"),
        pytest.param(
            {"mappedFileSizeCommitLog": 8 << 20, "messageIndexEnable": False}, 10, QUEUE_IS_FULL, id="consume queue"
        ),
        pytest.param(
            {"mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 200_000}, 10, QUEUE_IS_FULL, id="index"
        ),
    ],
)
def test_a_full_disk_refuses_writes_with_the_cause(
    disk: Path, different: dict[str, object], size: int, remark: str
) -> None:
    settings: dict[str, object] = {**SETTINGS, **different}
    sent: list[bytes] = []
    with start(disk, settings) as broker, RawClient(broker.address) as client:
        make_files(client, sent)
        workers = broker.worker_pids()
        for remarks in ((remark,), (remark, QUEUE_IS_FULL)):  # the second time a queue may need its next block first
            ballast = fill(disk)
            refusal = send_until_refused(client, sent, size)
            assert refusal.code == 14 and refusal.remark in remarks, refusal
            assert client.send("Full", b"x", pairs={"WAIT": "false"}).code == 14
            shown = read_all(client)
            assert shown == sent[: len(shown)] and shown, "reads go on"
            assert client.ask(35, {"clientID": "nobody", "producerGroup": "none"}).code == 0, "control answers"
            ballast.unlink()

            def is_taken() -> bool:
                answer = client.send("Full", (b"%d" % len(sent)).ljust(size, b"."), pairs={"KEYS": f"key{len(sent)}"})
                if answer.code == 0:
                    sent.append((b"%d" % len(sent)).ljust(size, b"."))
                return answer.code == 0

            wait_until(is_taken, "writes are taken again once there is room")
            wait_until(lambda: len(read_all(client)) == len(sent), "what waited is readable")
            assert read_all(client) == sent
        assert broker.worker_pids() == workers, "no worker has died of it"
        assert broker.stop() == 0
    check(disk / "store", settings)


def test_workers_may_die_on_a_full_disk(disk: Path) -> None:
    """Each worker comes back and serves what can be served."""
    sent: list[bytes] = []
    with start(disk, LOG_ONLY) as broker, RawClient(broker.address) as client:
        make_files(client, sent)
        fill(disk)
        assert send_until_refused(client, sent, LARGE).remark == LOG_IS_FULL
        for name in ("write", "flush", "dispatch", "control"):
            old = broker.signal_worker(name, signal.SIGKILL)
            wait_until(lambda n=name, o=old: broker.worker_pids().get(n, o) != o, f"{name} is started again")
        wait_until(lambda: len(read_all(client)) == len(sent), "reads go on")
        (disk / "ballast").unlink()
        wait_until(lambda: client.send("Full", b"room").code == 0, "writes are taken again")
        assert broker.stop() == 0


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_start_on_a_full_disk_serves_or_says_why(disk: Path, how: str) -> None:
    sent: list[bytes] = []
    with start(disk, LOG_ONLY) as broker, RawClient(broker.address) as client:
        make_files(client, sent)
        fill(disk)
        assert send_until_refused(client, sent, LARGE).code == 14
        if how == "clean":
            broker.stop()
        else:
            broker.kill_all()
    fill(disk)
    try:
        with start(disk, LOG_ONLY) as broker, RawClient(broker.address) as client:
            assert read_all(client) == sent
            assert client.send("Full", bytes(LARGE)).remark == LOG_IS_FULL
            broker.stop()
    except RuntimeError as refusal:
        assert NO_SPACE in str(refusal)
        assert "Traceback" not in str(refusal)
    (disk / "ballast").unlink()
    with start(disk, LOG_ONLY) as broker, RawClient(broker.address) as client:
        assert read_all(client)[: len(sent)] == sent
        assert client.send("Full", b"again").code == 0
        assert broker.stop() == 0
    check(disk / "store", LOG_ONLY)


def test_retention_and_the_warning_level(disk: Path) -> None:
    """Over diskSpaceWarningLevelRatio writes are refused as in stock; old files go, by age or by force."""
    settings = {**LOG_ONLY, "cleanResourceInterval": 100, "cleanFileForciblyEnable": False}
    sent: list[bytes] = []
    with start(disk, settings) as broker, RawClient(broker.address) as client:
        refusal = send_until_refused(client, sent, LARGE)
        assert (refusal.code, refusal.remark) == (14, LOG_IS_FULL)
        used = os.statvfs(disk)
        assert 1 - used.f_bavail / used.f_blocks > 0.85, "not before the warning level"
        wait_until(lambda: len(read_all(client)) == len(sent), "all is dispatched, and readable")
        assert broker.stop() == 0, "nothing is left over"
    with start(disk, {**settings, "cleanFileForciblyEnable": True}) as broker, RawClient(broker.address) as client:
        wait_until(lambda: client.send("Full", b"room").code == 0, "old files were deleted by force")
        assert broker.stop() == 0
