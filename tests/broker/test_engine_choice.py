"""The choice of the event engine: by property, and by what the kernel or a seccomp filter refuses."""

import errno
import os
from collections.abc import Callable

import pytest

from ringmq.broker.engine_choice import EngineChoice, choose_engine, engine_line, probe_io_uring
from ringmq.broker.start_error import StartError
from ringmq.ipc.exit_status import EXIT_ENGINE_REFUSED
from tests.broker.seccomp import IO_URING, IO_URING_ENTER, IO_URING_REGISTER, IO_URING_SETUP, Refusal, refusing

REFUSAL = "io_uring is refused: io_uring_setup answered EPERM (Operation not permitted); allow it"
NAMES = {
    IO_URING_SETUP: "io_uring_setup",
    IO_URING_ENTER: "io_uring_enter(IORING_OP_RECV, multishot)",
    IO_URING_REGISTER: "io_uring_register(IORING_REGISTER_PBUF_RING)",
}
ADVICE = {
    errno.EPERM: "seccomp profile",
    errno.ENOSYS: "Linux 6.0 or later is needed, and a profile that permits",
    errno.ENOMEM: "raise the locked-memory limit (ulimit -l, LimitMEMLOCK=)",
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE=)",
}
REGISTER_PBUF_RING = 22


def never() -> str:
    raise AssertionError("epoll needs no probe")


@pytest.mark.parametrize(
    ("wanted", "probe", "chosen"),
    [
        ("auto", lambda: "", EngineChoice("io_uring", "ringmqEngine = auto")),
        ("io_uring", lambda: "", EngineChoice("io_uring", "ringmqEngine = io_uring")),
        ("epoll", never, EngineChoice("epoll", "ringmqEngine = epoll")),
        ("auto", lambda: REFUSAL, EngineChoice("epoll", REFUSAL, is_fallback=True)),
    ],
)
def test_choices(wanted: str, probe: Callable[[], str], chosen: EngineChoice) -> None:
    assert choose_engine(wanted, probe) == chosen


def test_io_uring_that_is_wanted_and_refused_is_a_status_of_its_own() -> None:
    with pytest.raises(StartError) as caught:
        choose_engine("io_uring", lambda: REFUSAL)
    assert caught.value.status == EXIT_ENGINE_REFUSED
    assert str(caught.value) == f"{REFUSAL}; or set ringmqEngine = auto or epoll, which is slower"


def test_the_log_line_says_which_engine_and_why() -> None:
    assert engine_line(choose_engine("epoll", never)) == "engine epoll: ringmqEngine = epoll"
    assert engine_line(choose_engine("auto", lambda: REFUSAL)) == f"engine epoll, slower than io_uring: {REFUSAL}"


def said_under(*refusals: Refusal) -> str:
    """What the probe says in a child process under a filter."""
    from_child, to_parent = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            refusing(*refusals)()
            os.write(to_parent, probe_io_uring().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(to_parent)
    with os.fdopen(from_child, "rb") as said:
        text = said.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return text


@pytest.mark.io_uring
def test_io_uring_works_here() -> None:
    assert said_under() == ""


@pytest.mark.io_uring
@pytest.mark.parametrize("error", ADVICE)
@pytest.mark.parametrize("call", IO_URING, ids=lambda call: NAMES[call].partition("(")[0])
def test_each_refused_call_is_named_with_its_error_and_a_remedy(call: int, error: int) -> None:
    said = said_under(Refusal(call, error))
    expected = f"io_uring is refused: {NAMES[call]} answered {errno.errorcode[error]} ({os.strerror(error)}); "
    assert said.startswith(expected)
    assert ADVICE[error] in said


@pytest.mark.io_uring
def test_a_kernel_without_rings_of_buffers_is_told_from_a_refusal() -> None:
    """Linux before 5.19 answers so."""
    said = said_under(Refusal(IO_URING_REGISTER, errno.EINVAL, argument=1, value=REGISTER_PBUF_RING))
    assert said.endswith(
        "io_uring_register(IORING_REGISTER_PBUF_RING) answered EINVAL (Invalid argument); Linux 6.0 or later is needed"
    )
