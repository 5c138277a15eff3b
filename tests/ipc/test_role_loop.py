"""A worker's exit status tells the supervisor whether starting again can help."""

import errno

import pytest

from ringmq.ipc.exit_status import EXIT_ENGINE_REFUSED, EXIT_NOT_RESTARTABLE, EXIT_USAGE
from ringmq.ipc.role_loop import RoleError, no_worker, opened
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


def test_a_name_that_is_not_served_is_not_started_again() -> None:
    error = no_worker("reader")
    assert str(error) == "there is no worker reader"
    assert error.status == EXIT_USAGE
    assert error.status in EXIT_NOT_RESTARTABLE
