"""What a worker's process costs at its start, and what its exit status tells the supervisor."""

import errno
import subprocess
import sys

import pytest

from ringmq.broker.worker import RoleError, opened
from ringmq.ipc.exit_status import EXIT_ENGINE_REFUSED, EXIT_NOT_RESTARTABLE
from ringmq.native import ffi


def failed(number: int, *, needs_engine: bool) -> RoleError:
    with pytest.raises(RoleError) as caught:
        opened("read-0", ffi.NULL, ffi.new("int *", -number), needs_engine=needs_engine)
    return caught.value


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.ENOSYS])
def test_a_refused_engine_is_not_started_again(number: int) -> None:
    error = failed(number, needs_engine=True)
    assert error.status == EXIT_ENGINE_REFUSED
    assert error.status in EXIT_NOT_RESTARTABLE
    assert "io_uring" in str(error)


def test_other_failures_are_tried_again() -> None:
    assert failed(errno.ENOMEM, needs_engine=True).status == 1
    assert failed(errno.EACCES, needs_engine=False).status == 1


@pytest.mark.parametrize(
    ("entry", "unwanted"),
    [
        ("ringmq.broker.worker", "ringmq.ipc.supervisor_core ringmq.remoting.command ringmq.store.recovery"),
        ("ringmq.broker.server", "ringmq.remoting.client_headers ringmq.broker.tables.consumers importlib.metadata"),
    ],
)
def test_a_start_does_not_pay_for_what_it_does_not_use(entry: str, unwanted: str) -> None:
    """Six processes start one after another while nobody is served."""
    script = f"import sys, {entry}; print(*(name for name in {unwanted.split()} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert not loaded.stdout.split()
