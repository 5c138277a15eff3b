"""Blocking clients and processes that fork: multiprocessing, servers that load the application before their workers."""

import os
import signal
from collections.abc import Callable

import pytest

from ringmq.client import ClientClosedError, Message, blocking
from tests.client.threaded_cluster import threaded_cluster


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a fork of this process; its failure is ours."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
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
        assert [m.body for m in consumer.poll(timeout_ms=10_000)]
        consumer.close()
