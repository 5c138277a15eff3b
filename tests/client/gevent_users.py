"""200 users of the blocking SDK as greenlets, in a process that gevent has patched; prints how long they took together.

Run by test_gevent.py: python -m tests.client.gevent_users NAMESRV TOPIC USERS ROUNDS
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import json
import sys
import threading
import time

import gevent

from ringmq.client import ConnectionSettings, ConsumeFrom, Message, RetryPolicy
from ringmq.client.blocking import Consumer, Producer

PATIENT = ConnectionSettings(60_000, 60_000)


def produce(namesrv: str, topic: str, rounds: int) -> list[float]:
    """One user that sends; how long each send took."""
    took = []
    with Producer(namesrv, retry=RetryPolicy(budget_ms=60_000), settings=PATIENT) as producer:
        for _ in range(rounds):
            began = time.monotonic()
            producer.send(Message(topic, b"x"))
            took.append(time.monotonic() - began)
    return took


def consume(namesrv: str, topic: str, number: int) -> list[float]:
    """One user that reads one message, and then waits for another one that does not come."""
    took = []
    options = {"consume_from": ConsumeFrom.FIRST, "settings": PATIENT}
    with Consumer(topic, namesrv, f"g{number}", **options) as consumer:
        assert consumer.poll(1, timeout_ms=60_000)
        began = time.monotonic()
        assert consumer.poll(1000, timeout_ms=500) is not None
        took.append(time.monotonic() - began)
    return took


def main(namesrv: str, topic: str, users: int, rounds: int) -> None:
    """All at once."""
    began = time.monotonic()
    half = users // 2
    work = [gevent.spawn(produce, namesrv, topic, rounds) for _ in range(half)]
    work += [gevent.spawn(consume, namesrv, topic, number) for number in range(users - half)]
    ticks = 0
    while not all(one.ready() for one in work):
        gevent.sleep(0.01)
        ticks += 1
    sends = [seconds for one in work[:half] for seconds in one.get()]
    waits = [seconds for one in work[half:] for seconds in one.get()]
    print(
        json.dumps(
            {
                "elapsed_s": time.monotonic() - began,
                "sends": len(sends),
                "sum_of_sends_s": sum(sends),
                "sum_of_waits_s": sum(waits),
                "ticks": ticks,
                "threads": threading.active_count(),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
