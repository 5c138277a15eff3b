"""Receives and acknowledges messages through RocketMQ's proxy with the 5.x Python client. Prints one JSON object.

Arguments: host:port of the proxy, topic, workers of one consumer, messages of a receive, seconds. The client has no
acknowledgement of several messages. So a worker that receives several has a thread for each.
"""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

INVISIBLE_S = 60
POLL_S = 1
REQUEST_TIMEOUT_S = 30
START_S = 60.0
"""The proxy answers with errors until it knows the settings of a new client."""


class Rates:
    """Counts messages from the first acknowledgement on, as `measure_pops` of RingMQ's bench does."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._cpu_s = 0.0
        self.done = self.duplicates = 0
        self.begin, self.deadline = 0.0, float("inf")

    def note(self, ids: list[str]) -> None:
        """Count acknowledged messages."""
        with self._lock:
            if self.begin:
                self.done += len(ids)
            else:
                self.begin, self._cpu_s = time.monotonic(), time.process_time()
                self.deadline = self.begin + self._seconds
            known = len(self._seen)
            self._seen.update(ids)
            self.duplicates += len(ids) - (len(self._seen) - known)

    def report(self) -> dict[str, float]:
        """The rate, and the processor time of this process for a message."""
        elapsed, cpu_s = time.monotonic() - self.begin, time.process_time() - self._cpu_s
        return {
            "messages": self.done,
            "messages_per_s": self.done / elapsed,
            "duplicates": self.duplicates,
            "cpu_us": 1e6 * cpu_s / max(1, self.done),
        }


def first_receive(consumer: SimpleConsumer) -> None:
    """Receive and acknowledge one message as soon as the proxy serves the consumer."""
    deadline, messages = time.monotonic() + START_S, []
    while not messages:
        try:
            messages = consumer.receive(1, INVISIBLE_S)
        except Exception:  # the client has a class of errors for each status
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # span: only the next try can tell
        if not messages and time.monotonic() > deadline:
            raise TimeoutError(f"no message in {START_S} s")
    consumer.ack(messages[0])


def main(endpoints: str, topic: str, workers: int, count: int, seconds: float) -> None:
    """Measure, print, and shut the client down."""
    configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=REQUEST_TIMEOUT_S)
    group = f"proxy_rates_{topic}_{time.time_ns()}"
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()}, await_duration=POLL_S)
    consumer.startup()
    first_receive(consumer)
    rates = Rates(seconds)

    def work() -> None:
        with ThreadPoolExecutor(count) as threads:
            while time.monotonic() < rates.deadline:
                messages = consumer.receive(count, INVISIBLE_S)
                if count == 1:
                    for message in messages:
                        consumer.ack(message)
                else:
                    list(threads.map(consumer.ack, messages))
                if messages:
                    rates.note([message.message_id for message in messages])

    with ThreadPoolExecutor(workers) as pool:
        for worker in [pool.submit(work) for _ in range(workers)]:
            worker.result()
    print(json.dumps(rates.report()), flush=True)
    consumer.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
