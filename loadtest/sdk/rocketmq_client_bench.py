"""The SDK bench's measurements with the 4.x client `rocketmq` 0.4.4 of PyPI. Prints one JSON object.

Run by the Python of an environment that has that package and not ringmq, so this module imports nothing of ringmq.
The client's batch sends wait for their answer, so as many threads send as RingMQ's SDK has batches in flight.
"""

import argparse
import json
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.exceptions import ProducerException

BATCH = 20
BATCHES_IN_FLIGHT = 16
PIPELINE = 256
BODY_BYTES = 1024
IDLE_S = 10.0
FILLER = (b"127.0.0.1 - - GET /presentations/logstash HTTP/1.1 200 7697 " * 20)[: BODY_BYTES - 16]


class Counted:
    """Makes messages with the same properties as RingMQ's SDK. `failed` counts those without an acknowledgement."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self.failed = 0
        self._bodies = [b"%016d" % number + FILLER for number in range(256)]
        self._lock = threading.Lock()

    def message(self) -> Any:
        """Return the next message."""
        with self._lock:
            number = self.count
            self.count += 1
        message = Message(self.topic)
        message.set_body(self._bodies[number % len(self._bodies)])
        message.set_tags("TagA")
        message.set_keys(f"S{number}")
        return message

    def fail(self, count: int) -> None:
        """Count messages without an acknowledgement."""
        with self._lock:
            self.failed += count


def send_one(producer: Any, source: Counted, deadline: float) -> None:
    """Send messages one by one, each after the last answer."""
    while time.monotonic() < deadline:
        try:
            producer.send_sync(source.message())
        except ProducerException:
            source.fail(1)


def send_batches(producer: Any, source: Counted, deadline: float) -> None:
    """Send batches from several threads."""

    def worker() -> None:
        while time.monotonic() < deadline:
            try:
                producer.send_batch([source.message() for _ in range(BATCH)])
            except ProducerException:
                source.fail(BATCH)

    threads = [threading.Thread(target=worker) for _ in range(BATCHES_IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def send_pipelined(producer: Any, source: Counted, deadline: float) -> None:
    """Send by `send_async` with a bound on the sends in flight."""
    room = threading.Semaphore(PIPELINE)

    def failed(error: Exception) -> None:
        source.fail(1)
        room.release()

    while time.monotonic() < deadline:
        room.acquire()
        producer.send_async(source.message(), lambda result: room.release(), failed)
    for _ in range(PIPELINE):
        room.acquire()


MODES = {"one": send_one, "batch": send_batches, "pipelined": send_pipelined}


def measure_send(namesrv: str, topic: str, mode: str, seconds: float) -> dict[str, float]:
    """Warm up for a fifth of the time, then measure."""
    source = Counted(topic)
    producer = Producer("rocketmq_client_bench")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    MODES[mode](producer, source, time.monotonic() + seconds / 5)
    warm, begin = source.count, time.monotonic()
    MODES[mode](producer, source, begin + seconds)
    elapsed = time.monotonic() - begin
    producer.shutdown()
    count = source.count - warm
    stored = source.count - source.failed
    return {"messages": count, "messages_per_s": count / elapsed, "all_messages": stored, "failed": source.failed}


def measure_consume(namesrv: str, topic: str, messages: int, seconds: float) -> dict[str, float]:
    """Consume with a new group on a young topic.

    Time runs from the first message until `messages` or the end of the time.
    """
    lock = threading.Lock()
    seen = {"count": 0, "bytes": 0, "first": 0.0, "last": 0.0}

    def take(message: Any) -> None:
        size = len(message.body)
        now = time.monotonic()
        with lock:
            seen["first"] = seen["first"] or now
            seen["count"] += 1
            seen["bytes"] += size
            seen["last"] = now

    consumer = PushConsumer(f"rocketmq_client_bench_{topic}_{time.time_ns()}")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, take)
    began = time.monotonic()
    consumer.start()
    while seen["count"] < messages:
        now = time.monotonic()
        if now - (seen["last"] or began) > IDLE_S or (seen["first"] and now - seen["first"] > seconds):
            break
        time.sleep(0.01)
    with lock:
        found = dict(seen)
    consumer.shutdown()
    elapsed = found["last"] - found["first"]
    rate = (found["count"] - 1) / elapsed if elapsed else 0.0
    count = found["count"]
    return {"messages": count, "messages_per_s": rate, "all_messages": count, "bytes": found["bytes"]}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--mode", choices=[*sorted(MODES), "consume"], default="batch")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--messages", type=int, default=0, help="how many there are to consume")
    options = parser.parse_args()
    if options.mode == "consume":
        report = measure_consume(options.namesrv, options.topic, options.messages, options.seconds)
    else:
        report = measure_send(options.namesrv, options.topic, options.mode, options.seconds)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
