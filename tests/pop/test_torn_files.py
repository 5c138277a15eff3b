"""POP's files after a power cut are torn, missing, or of another store: no message is lost, and a line says so."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker, remove_shared_memory
from ringmq.pop.image_file import FOLDER, IMAGE, JOURNAL, PAGE, read_header
from ringmq.pop.names import FILE
from ringmq.pop.pop_damage import find_pop_damage
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient
from tests.pop.test_pop_broker import committed, found, send
from tests.pop.test_power_cut import open_in_image
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
BODIES = [b"%d" % number for number in range(150)]
HOUR_MS = 3_600_000
NOTHING = ""
SETTINGS = {**SMALL, "flushConsumerOffsetInterval": 1000}


def cut_store(store: Path) -> tuple[Path, set[bytes]]:
    """A store whose machine has lost its power, with open messages in the snapshot; the bodies that are not done.

    The first 30 messages are done, and so are some that come later.
    """
    with RunningBroker(store, SETTINGS) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", BODIES, 1)
        client = PopClient(broker.address, "G", "T")
        held = [found(client, invisible_ms=HOUR_MS), *client.pop_all(count=8, invisible_ms=HOUR_MS)]
        done = [*held[:30], *held[60:130:7]]
        assert all(client.ack(one).code == 0 for one in done)
        wait_until(lambda: open_in_image(store) == len(BODIES) - len(done), "a snapshot has all")
        wait_until(lambda: committed(broker.address, "G", "T", 0) == 30, "the offset is reported")
        saved = store / "config" / "consumerOffset.json"
        wait_until(lambda: saved.exists() and "0:30" in saved.read_text(), "the offset is saved")
        broker.kill_all()
    remove_shared_memory(store)
    return store, {one.body for one in held} - {one.body for one in done}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[bytes], Path]:
    """Two such stores, with what is not done in both."""
    folder = tmp_path_factory.mktemp("cut")
    store, left = cut_store(folder / "one")
    other, _ = cut_store(folder / "other")
    return store, left, other


def entries_at(folder: Path) -> int:
    return int(read_header((folder / IMAGE).read_bytes()[:PAGE], has_check=True).layout.entries_at)


def without_journal(folder: Path) -> None:
    (folder / JOURNAL).unlink()


def cut_image(folder: Path, at: int) -> None:
    """The file ends there, and the journal does not help."""
    without_journal(folder)
    os.truncate(folder / IMAGE, at)


def zero_entries(folder: Path) -> None:
    """A file system that has lost pages reads zeros."""
    without_journal(folder)
    data, at = (folder / IMAGE).read_bytes(), entries_at(folder)
    (folder / IMAGE).write_bytes(data[:at] + bytes(len(data) - at))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 8
    path.write_bytes(data)


def flip_image(folder: Path, at: int) -> None:
    """One bit is another one, and the journal does not help."""
    without_journal(folder)
    flip(folder / IMAGE, at)


DAMAGES: list[tuple[str, Callable[[Path, Path], object], str]] = [
    ("nothing", lambda folder, other: None, NOTHING),
    ("no journal", lambda folder, other: without_journal(folder), NOTHING),
    ("torn journal", lambda folder, other: os.truncate(folder / JOURNAL, 5000), NOTHING),
    ("no image", lambda folder, other: (folder / IMAGE).unlink(), NOTHING),
    ("empty image", lambda folder, other: cut_image(folder, 0), "it has no header"),
    ("torn header", lambda folder, other: cut_image(folder, 100), "it has no header"),
    ("torn windows", lambda folder, other: cut_image(folder, 2 * PAGE), "entries are there instead of"),
    ("torn entries", lambda folder, other: cut_image(folder, entries_at(folder) + 640), "entries are there instead of"),
    ("lost entries", lambda folder, other: zero_entries(folder), "entries are there instead of"),
    ("changed header", lambda folder, other: flip_image(folder, 33), "header is damaged"),
    ("changed window", lambda folder, other: flip_image(folder, PAGE), "damaged"),
    ("no names", lambda folder, other: (folder / FILE).unlink(), NOTHING),
    ("torn names", lambda folder, other: os.truncate(folder / FILE, 20), NOTHING),
    ("changed names", lambda folder, other: flip(folder / FILE, 30), "names of windows are damaged"),
    ("other broker", lambda folder, other: shutil.copytree(other, folder, dirs_exist_ok=True), "the log is not"),
    ("no folder", lambda folder, other: shutil.rmtree(folder), NOTHING),
]  # fmt: skip
NOTHING_LOST_OF_ACKS = ("nothing", "no journal", "torn journal")


@pytest.mark.parametrize(("damage", "line"), [pytest.param(do, line, id=name) for name, do, line in DAMAGES])
def test_each_damage_leaves_every_message(
    stores: tuple[Path, set[bytes], Path], tmp_path: Path, damage: Callable[[Path, Path], object], line: str,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    source, left, other = stores
    store = Path(shutil.copytree(source, tmp_path / "store"))
    damage(store / FOLDER, other / FOLDER)
    with RunningBroker(store, SMALL) as broker:
        client, came = PopClient(broker.address, "G", "T"), set[bytes]()
        is_kept = request.node.callspec.id in NOTHING_LOST_OF_ACKS
        send(broker.address, "T", [b"new"], 1)

        def has_new() -> bool:
            came.update(one.body for one in client.pop_all())
            return b"new" in came

        wait_until(has_new, "the group goes on")
        if is_kept:
            assert came == {b"new"}, "consumers have the others for an hour"
        else:
            assert left <= came, "a message is lost"
            assert not came & set(BODIES[:30]), "the consumer offset counts"
        assert line in broker.log_tail(1 << 20)
        assert broker.stop() == 0
    assert find_pop_damage(MessageStore(StoreConfig(store))) == [], "a start mends all"
