"""A reader on epoll without room to watch its connections."""

import errno
import os
from contextlib import ExitStack
from pathlib import Path

from crash_kit import in_child
from reader_kit import TURN_NS, ReaderKit, connected, request
from waiting import wait_until

from ringmq.native import ffi, lib
from tests.broker.seccomp import Refusal, call_numbers, refusing

EPOLL_CTL_ADD = 1


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
