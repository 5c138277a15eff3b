"""Lines of a start about damage are warnings. Lines about usual steps after a kill are not."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.broker import server
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.store import markers
from ringmq.store.checkpoint import Checkpoint, write_checkpoint
from ringmq.store.recovery import recover
from tests.broker.test_damage_table import SETTINGS
from tests.store.conftest import _crashed_stores, crashed_copy  # noqa: F401
from tests.store.damage_kit import leave_bounds
from tests.store.golden_stores import crashed_config

LAST_LOG_FILE = f"{1310720:020d}"


def queue_file(root: Path) -> Path:
    return root / "consumequeue" / "CrashA" / "0" / ("0" * 20)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def stopped(root: Path) -> None:
    recover(crashed_config(root))
    leave_bounds(crashed_config(root))
    markers.remove_abort(root)


def flipped_unit(root: Path) -> None:
    """Of a record in the newest log file, which a start reads."""
    stopped(root)
    path = sorted(path for path in queue_file(root).parent.iterdir() if any(path.read_bytes()))[-1]
    flip(path, (len(path.read_bytes().rstrip(b"\0")) - 1) // 20 * 20 + 19)


def short_queue_file(root: Path) -> None:
    stopped(root)
    os.truncate(queue_file(root), 100)


def missing_index(root: Path) -> None:
    stopped(root)
    for path in (root / "index").iterdir():
        path.unlink()


def wrong_body(root: Path) -> None:
    stopped(root)
    flip(root / "commitlog" / LAST_LOG_FILE, 88)


def wrong_frame(root: Path) -> None:
    stopped(root)
    flip(root / "commitlog" / LAST_LOG_FILE, 5)


def torn_end(root: Path) -> None:
    with (root / "commitlog" / LAST_LOG_FILE).open("r+b") as file:
        file.seek(1343209 - 1310720)
        file.write(b"\0\0\1\0\xda\xa3\x20\xa7 half of a record")


def file_behind_the_end(root: Path) -> None:
    torn_end(root)
    shutil.copy(root / "commitlog" / LAST_LOG_FILE, root / "commitlog" / f"{1310720 + 262144:020d}")


def failed_sync(root: Path) -> None:
    markers.write_failed_marker(root, "EIO")


def nothing(root: Path) -> None:
    write_checkpoint(root, Checkpoint(0, 0, 0))


CASES: list[tuple[Callable[[Path], None], int, str]] = [
    (nothing, logging.INFO, "removed the unused log file"),
    (nothing, logging.INFO, "is newer than the checkpoint"),
    (flipped_unit, logging.WARNING, "it is written again"),
    (short_queue_file, logging.WARNING, "are made again"),
    (short_queue_file, logging.WARNING, "is moved to"),
    (missing_index, logging.WARNING, "the index is made again"),
    (wrong_body, logging.WARNING, "a body with a wrong CRC"),
    (wrong_frame, logging.WARNING, "is damaged"),
    (torn_end, logging.WARNING, "the log ends at"),
    (file_behind_the_end, logging.WARNING, "lies behind the end of the log"),
    (failed_sync, logging.WARNING, "ended with a failed fsync"),
]


@pytest.mark.parametrize(
    ("damage", "level", "text"), CASES, ids=[f"{case[0].__name__}-{case[2].split()[-1]}" for case in CASES]
)
def test_damage_is_a_warning(
    crashed_copy: Callable[[str], Path],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    level: int,
    text: str,
) -> None:
    root = crashed_copy("crash-kill9")
    damage(root)
    config = changed(BrokerConfig(), SETTINGS | {"storePathRootDir": str(root)})
    with caplog.at_level(logging.INFO, "ringmq"):
        server.recover_store(config, lambda step: None, unknown_topics_from=None)
    levels = {record.levelno for record in caplog.records if text in record.getMessage()}
    assert levels == {level}, [record.getMessage() for record in caplog.records]
