"""Links and foreign files in a store folder: a broker does not write through them."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from ringmq.store import layout, markers
from ringmq.store.checkpoint import Checkpoint, write_checkpoint
from ringmq.store.config_files import persist_config
from ringmq.store.mapped_file import write_zeros
from ringmq.store.safe_files import open_to_write
from ringmq.store.store_lock import StoreLock, StoreLockedError, byte_0_lock

SECRET = b"the file of another user"
NOBODY = 65534


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store" / "config").mkdir(parents=True)
    return tmp_path / "store"


def test_the_lock_is_not_taken_through_a_link(store: Path, target: Path) -> None:
    (store / layout.LOCK).symlink_to(target)
    with pytest.raises(OSError, match=layout.LOCK) as caught:
        StoreLock(store)
    assert caught.value.errno == errno.ELOOP
    assert target.read_bytes() == SECRET


def test_no_mark_and_no_table_is_written_through_a_link(store: Path, target: Path) -> None:
    for name in ("abort.tmp", "config/topics.json.tmp", "config/topics.json"):
        (store / name).symlink_to(target)
    markers.write_abort(store, 5)
    persist_config(store, "topics.json", {"topicConfigTable": {}})
    for name in (layout.ABORT, layout.CHECKPOINT):
        (store / name).unlink(missing_ok=True)
        (store / name).symlink_to(target)
    for write in (
        lambda: markers.write_abort(store, 5),
        lambda: write_checkpoint(store, Checkpoint()),
        lambda: write_zeros(store / layout.ABORT, 0, 5),
    ):
        with pytest.raises(OSError, match="symbolic links"):
            write()
    assert target.read_bytes() == SECRET


def test_other_types_and_foreign_owners_are_refused(store: Path) -> None:
    os.mkfifo(store / "pipe")
    with pytest.raises(OSError, match="no plain file"):
        open_to_write(store / "pipe", os.O_RDWR)
    if os.geteuid():
        pytest.skip("only root can make files of other users")
    (store / "foreign").touch()
    os.chown(store / "foreign", NOBODY, NOBODY)
    with pytest.raises(OSError, match="no plain file of this user"):
        open_to_write(store / "foreign", os.O_RDWR)
    os.chown(store, NOBODY, NOBODY)
    with pytest.raises(OSError, match="no plain file of this user"):  # nor for the folder's owner
        open_to_write(store / "foreign", os.O_RDWR)


def test_a_new_lock_is_the_groups_and_an_old_one_keeps_its_mode(store: Path) -> None:
    StoreLock(store).close()
    assert (store / layout.LOCK).stat().st_mode & 0o777 == 0o640
    (store / layout.LOCK).chmod(0o644)
    StoreLock(store).close()
    assert (store / layout.LOCK).stat().st_mode & 0o777 == 0o644


def test_a_read_lock_is_no_broker(store: Path) -> None:
    StoreLock(store).close()
    with (store / layout.LOCK).open("rb") as held:
        fcntl.fcntl(held, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_RDLCK))
        with pytest.raises(StoreLockedError, match=r"no broker holds a read lock on it.*chmod 640"):
            StoreLock(store)
    StoreLock(store).close()
