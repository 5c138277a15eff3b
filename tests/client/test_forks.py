"""Blocking clients and processes that fork: multiprocessing, servers that load the application before their workers."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from ringmq.client import ClientClosedError, Message, blocking
from ringmq.client.runtimes import runtime, thread_loop
from ringmq.client.runtimes.thread_loop import ThreadLoop
from tests.client.threaded_cluster import threaded_cluster
from tests.waiting import wait_until


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a fork of this process; its failure is ours."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_client_is_left_to_the_process_that_started_it() -> None:
    """Both would take each other's answers off one connection."""
    with threaded_cluster(topics={"T": 1}) as cluster, blocking.Producer(cluster.namesrv) as producer:
        assert producer.send(Message("T", b"parent")).queue_offset == 0
        consumer = blocking.Consumer("T", cluster.namesrv, "g")
        consumer.start()

        def work() -> None:
            for call in (
                lambda: producer.send(Message("T", b"x")),
                producer.start,
                lambda: consumer.poll(timeout_ms=0),
            ):
                with pytest.raises(ClientClosedError, match="forked"):
                    call()
            producer.close()
            consumer.close()
            with blocking.Producer(cluster.namesrv) as own:
                assert own.send(Message("T", b"child")).queue_offset == 1

        in_child(work)
        assert producer.send(Message("T", b"parent")).queue_offset == 2
        assert [m.body for m in consumer.poll(timeout_ms=60_000)]
        consumer.close()


def sockets_of(producer: blocking.Producer) -> list[int]:
    endpoints = producer._client._client._endpoints.values()
    return [e.connection._transport._socket.fileno() for e in endpoints if e.connection]  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_keeps_no_connection_of_its_parent_open() -> None:
    """They are the parent's alone, and go on."""
    with threaded_cluster(topics={"T": 1}) as cluster, blocking.Producer(cluster.namesrv) as producer:
        producer.send(Message("T", b"x"))
        open_before = sockets_of(producer)
        assert len(open_before) == 2

        def work() -> None:
            for number in open_before:
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.fstat(number)

        in_child(work)
        producer.send(Message("T", b"x"))
        assert sockets_of(producer) == open_before


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_a_client_closes_leaves_it_to_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_loop, "CLOSE_WAIT_S", 60.0)

    async def waiting() -> None:
        over.append(runtime.Event())
        waits.set()
        await over[0].wait()

    def work() -> None:
        with pytest.raises(ClientClosedError, match="forked"):
            loop.open()

    loop, waits, over = ThreadLoop("closing"), threading.Event(), []
    loop.open()
    threading.Thread(target=lambda: loop.run(waiting())).start()
    assert waits.wait(60)
    closing = threading.Thread(target=loop.close)
    closing.start()
    wait_until(lambda: not loop.is_open, "it closes")
    in_child(work)
    loop.call(lambda: over[0].set())
    closing.join(60)
    assert not closing.is_alive()
