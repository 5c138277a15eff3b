"""Greenlets that are killed while they send, in a process that gevent has patched; the others go on, and close ends.

Run by test_gevent.py: python -m tests.client.gevent_kills NAMESRV TOPIC
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import contextlib
import random
import sys

import gevent

from ringmq.client import Message, RetryPolicy, SendError
from ringmq.client.blocking import Producer

USERS, KILLS = 40, 400


def main(namesrv: str, topic: str) -> None:
    """Kill one after another, at any point; each has a successor."""
    with Producer(namesrv, retry=RetryPolicy(budget_ms=60_000)) as producer:

        def send_for_ever() -> None:
            while True:
                with contextlib.suppress(SendError):  # a send that is broken off costs the connection
                    producer.send(Message(topic, bytes(20_000)))

        users = [gevent.spawn(send_for_ever) for _ in range(USERS)]
        chance = random.Random(7)
        for _ in range(KILLS):
            gevent.sleep(chance.choice((0, 0, 0.001, 0.003)))
            number = chance.randrange(USERS)
            users[number].kill()
            users[number] = gevent.spawn(send_for_ever)
        gevent.killall(users)
        print(producer.send(Message(topic, b"last")).status.name)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
