"""Whoever holds the store's lock keeps everybody out until the last process of the broker is gone.

Workers end with their supervisor (parent-death signal and life pipe), so a survivor is made: a process that gets a
copy of a worker's own lock descriptor (pidfd_getfd), as a worker in an uninterruptible system call would still have it.
"""

import ctypes
import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.ipc.watermark import store_is_locked
from ringmq.loadtest.load.running import RunningBroker
from tests.descriptors import descriptors_of
from tests.drill.settings import SMALL_STORE
from tests.raw_client import RawClient

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
SYS_PIDFD_GETFD = 438
SETTINGS = SMALL_STORE
# What java.nio's FileChannel.tryLock does in a stock broker: a POSIX lock on one byte.
POSIX_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError as error:
        sys.exit(error.errno)
"""


def copy_of_lock(pid: int, store: Path) -> int:
    """A descriptor of our own for the open lock file of another process; skips where the kernel forbids it."""
    (number,) = descriptors_of(pid, store / "lock")
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        copy = int(libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0))
    finally:
        os.close(pidfd)
    if copy < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        pytest.skip(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
    assert copy >= 0, os.strerror(ctypes.get_errno())
    return copy


def posix_lock_errno(store: Path) -> int:
    """0 when another process gets the POSIX lock, else why not."""
    command = [sys.executable, "-c", POSIX_LOCK, str(store / "lock")]
    return subprocess.run(command, timeout=120, check=False).returncode


def refusal_of_a_second_broker(store: Path) -> str:
    """What a second `ringmq serve` on the store says; AssertionError when it serves."""
    with pytest.raises(RuntimeError) as refusal, RunningBroker(store, SETTINGS):
        pass
    return str(refusal.value)


@pytest.mark.parametrize("worker", ["write", "dispatch", "namesrv"])
def test_nobody_gets_the_store_while_a_worker_lives(tmp_path: Path, worker: str) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SETTINGS) as broker:
        with RawClient(broker.address) as client:
            assert client.send("Owned", b"kept").code == 0
        survivor = copy_of_lock(broker.worker_pids()[worker], store)
        broker.kill_supervisor()
    try:
        assert store_is_locked(store)
        assert posix_lock_errno(store) in (errno.EAGAIN, errno.EACCES), "a stock broker is kept out"
        if worker == "write":
            refusal = refusal_of_a_second_broker(store)
            assert "another broker" in refusal and str(store) in refusal
    finally:
        os.close(survivor)
    assert not store_is_locked(store)
    assert posix_lock_errno(store) == 0, "and gets in when the last holder is gone"
    broker.close()
    if worker == "write":
        with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
            assert client.pull("Owned").code == 0
            assert broker.stop() == 0


def test_a_stock_broker_keeps_us_out(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with (store / "lock").open("w+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        assert "another broker" in refusal_of_a_second_broker(store)
