"""Timer files that are damaged while no broker runs: a start mends them, says so, and each message comes once."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.doctor.gather_store import gather_store
from ringmq.loadtest.load.running import RunningBroker
from ringmq.store.inferred_config import config_without_index
from ringmq.store.layout import TIMER_WHEEL_FILE
from ringmq.store.message_store import MessageStore
from ringmq.timer.timer_damage import find_timer_damage
from ringmq.timer.timer_log import FOLDER, UNIT_BYTES
from tests.broker.test_delay_metrics import Scrape
from tests.broker.test_timers import now_ms
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
LOG_BYTES, COUNT = 4096, 200
"""Three files of TimerLog."""
SETTINGS = {"mappedFileSizeTimerLog": LOG_BYTES, "mappedFileSizeCommitLog": 4 << 20, "recallMessageEnable": True}
DUE_MS = 8000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was stopped with timer messages: some are delivered, one is recalled."""
    root = tmp_path_factory.mktemp("timers") / "store"
    with RunningBroker(root, SETTINGS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        due_ms = now_ms() + DUE_MS
        for number in range(COUNT):
            at_ms = now_ms() + 50 if number % 10 == 0 else due_ms + number * 37 % 3000
            pairs = {"TIMER_DELIVER_MS": str(at_ms), "UNIQ_KEY": f"k{number}"}
            assert client.send("T", b"x", pairs=pairs).code == 0
        at_ms = due_ms + 1 * 37 % 3000
        pairs = {"TIMER_DELIVER_MS": str(at_ms), "UNIQ_KEY": "d", "TIMER_DEL_UNIQKEY": "T+k1"}
        assert client.send("T", b"x", pairs=pairs).code == 0
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= COUNT // 10, "those without a delay are there")
        wait_until(lambda: Scrape(broker).value("ringmq_timer_enqueued_total") == COUNT + 1, "all have a unit")
        assert broker.stop() == 0
    return root


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def log_file(root: Path, number: int) -> Path:
    return sorted((root / FOLDER).iterdir())[number]


UNIT = 30 * UNIT_BYTES
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a bit of a previous position": (lambda root: flip(log_file(root, 0), UNIT + 11), "position 1560: no unit"),
    "the first file is missing": (lambda root: log_file(root, 0).unlink(), "begins at position 4096"),
    "a file of zeros": (lambda root: zeros(log_file(root, 1)), "position 4096: no unit"),
    "a wheel of zeros": (lambda root: zeros(root / TIMER_WHEEL_FILE), "slots of TimerWheel from"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_message_comes_once(store: Path, tmp_path: Path, damage: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(store, root)
    harm, named = DAMAGES[damage]
    config = config_without_index(root)
    assert not find_timer_damage(MessageStore(config)), "the stop was clean"
    harm(root)
    faults = find_timer_damage(MessageStore(config))
    assert len(faults) == 1 and named in faults[0][1]
    assert gather_store(config).guest_faults == (("timer", ": ".join(faults[0])),)
    if damage == "a wheel of zeros":
        verified = subprocess.run(
            [sys.executable, "-m", "ringmq.cli.main", "store", "verify", root, "--output", "json", "--quiet"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert verified.returncode == 1 and named in str(json.loads(verified.stdout)["findings"])
    with RunningBroker(root, SETTINGS) as broker:
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= COUNT - 1, "all are delivered")
        scrape, lines = Scrape(broker), broker.log_tail(1 << 20)
        assert named in lines
        if damage == "a wheel of zeros":
            assert (scrape.value("ringmq_timer_mended_slots_total") or 0) >= 3
            assert scrape.value("ringmq_timer_rebuilds_total") == 0
        else:
            assert scrape.value("ringmq_timer_rebuilds_total") == 1
            assert f"rebuilds wheel and TimerLog from {COUNT + 1} records" in lines
            assert f"has rebuilt wheel and TimerLog: {COUNT + 1} records" in lines
        found = Counter(message.properties["UNIQ_KEY"] for message in messages_of(broker.address, "T", 1))
        assert broker.stop() == 0
    assert found == Counter(f"k{number}" for number in range(COUNT) if number != 1)
    assert not find_timer_damage(MessageStore(config))
