"""A reader without descriptors for connections, or without room to watch them, on both engines."""

import errno
import os
import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from crash_kit import in_child
from reader_kit import TURN_NS, Client, ReaderKit, connected, request, send_frame
from sanitized import ENGINES
from waiting import TIMEOUT_S, wait_until

from ringmq.native import ffi, lib
from tests.broker.seccomp import Refusal, call_numbers, refusing

KINDS = {"io_uring": lib.RMQ_ENGINE_IO_URING, "epoll": lib.RMQ_ENGINE_EPOLL}
FREE_FILES = lib.RMQ_ROLES_MAX + 64
"""Descriptors that the child may open, for its kit, which has a bell for each role, and its clients."""
EPOLL_CTL_ADD = 1
WAITING = 3
SHARE_MAX = 0.05
"""Of a CPU, for a reader with nothing to do. It takes some 0.005; one that spins takes what the machine has left."""


def free_files(count: int) -> None:
    """Leave this process so many descriptors, for good: a reader raises the soft limit to the hard one."""
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + count, highest + count))


def use_up() -> list[int]:
    """Open descriptors until there are none."""
    taken = []
    while True:
        try:
            taken.append(os.dup(0))
        except OSError as error:
            assert error.errno == errno.EMFILE
            return taken


def reader_cpu_s(kit: ReaderKit) -> float:
    """CPU time of the thread of the reader."""
    (thread,) = (thread for thread in kit._threads if thread.name == "read")
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def accepts_again_when_a_descriptor_is_free(root: Path, engine: str) -> None:
    free_files(FREE_FILES)
    kit = ReaderKit(root, engine=KINDS[engine])
    kit.wide_topic(b"TopicA")
    kit.start("write")
    kit.start("read")
    address = kit.listeners[0].getsockname()
    first = Client(address)
    assert first.ask(send_frame("TopicA", b"before")).code == 0
    waiting = [socket.socket() for _ in range(WAITING)]
    taken = use_up()
    for other in waiting:
        other.connect(address)
        other.sendall(send_frame("TopicA", b"waits"))
    began, used_s = time.monotonic(), reader_cpu_s(kit)
    time.sleep(1.5)  # span: longer than the second until it asks for connections again
    share = (reader_cpu_s(kit) - used_s) / (time.monotonic() - began)
    assert share < SHARE_MAX, f"the reader spins: {share:.3f} of a CPU"
    for _ in range(10):
        assert first.ask(send_frame("TopicA", b"meanwhile")).code == 0
    assert kit.counter(lib.RMQ_READ_CONNECTIONS) == 1
    for number, other in enumerate(waiting, 1):
        os.close(taken.pop())
        wait_until(lambda number=number: kit.counter(lib.RMQ_READ_CONNECTIONS) == 1 + number, "one more is accepted")
        other.settimeout(TIMEOUT_S)
        assert other.recv(4), "what it has asked meanwhile is answered"
    assert first.ask(send_frame("TopicA", b"after")).code == 0
    kit.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reader_without_descriptors_serves_on_and_accepts_later(tmp_path: Path, engine: str) -> None:
    assert not in_child(lambda: accepts_again_when_a_descriptor_is_free(tmp_path, engine))


def closes_what_the_kernel_cannot_watch(root: Path) -> None:
    kit = ReaderKit(root, engine=lib.RMQ_ENGINE_EPOLL)
    main, vip = (listener.fileno() for listener in kit.listeners)
    error = ffi.new("int *")
    reader = lib.rmq_reader_open(kit.plane, 0, main, vip, error)
    assert reader != ffi.NULL, os.strerror(-error[0])

    def turn() -> None:
        assert lib.rmq_reader_run(reader, TURN_NS) >= 0

    with ExitStack() as stack:
        turn()  # it watches its listeners
        watched = stack.enter_context(connected(kit))
        turn()
        refusing(Refusal(call_numbers()["epoll_ctl"], errno.ENOSPC, argument=1, value=EPOLL_CTL_ADD))()
        newcomer = stack.enter_context(connected(kit))
        newcomer.send(request(105, {"topic": "TopicA"}))
        wait_until(lambda: (turn(), not newcomer.is_quiet(0))[1], "the newcomer hears something")
        assert newcomer.is_closed()
        assert kit.counter(lib.RMQ_READ_CLOSED_MEMORY) == 1
        watched.send(request(105, {"topic": "TopicA"}))
        wait_until(lambda: (turn(), kit.inbox_take())[1], "control has the request of a connection that is watched")
    lib.rmq_reader_close(reader)


def test_a_connection_that_the_kernel_cannot_watch_is_closed(tmp_path: Path) -> None:
    """Beyond fs.epoll.max_user_watches, which the processes of a user share."""
    assert not in_child(lambda: closes_what_the_kernel_cannot_watch(tmp_path))
