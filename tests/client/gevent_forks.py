"""A process that gevent has patched and that forks: greenlets come along into the child, connections do not.

Run by test_gevent.py: python -m tests.client.gevent_forks NAMESRV TOPIC
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import os
import sys

import gevent

from ringmq.client import ClientClosedError, Message, RetryPolicy
from ringmq.client.blocking import Producer


def main(namesrv: str, topic: str) -> None:
    """The parent's sends are answered to the parent, while a child lives."""
    with Producer(namesrv, retry=RetryPolicy(attempts=1, budget_ms=60_000)) as producer:
        producer.send(Message(topic, b"x"))
        child = os.fork()
        if child == 0:
            gevent.sleep(1)
            try:
                producer.send(Message(topic, b"x"))
            except ClientClosedError:
                producer.close()
                with Producer(namesrv) as own:
                    own.send(Message(topic, b"x"))
                sys.exit(0)
            os._exit(1)
        for _ in range(100):
            producer.send(Message(topic, b"x"))
            gevent.sleep(0.005)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    print("OK")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
