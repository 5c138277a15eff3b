"""A consumer as a process of its own, whose memory is watched.

    python -m ringmq.loadtest.siege.polling NAME_SERVER TOPIC < orders

It prints `ready`, polls until its input ends, and prints its figures as JSON. Its address space is bounded: a consumer
that a few messages can make grow shall not take the memory of the machine.
"""

import contextlib
import dataclasses
import json
import resource
import select
import subprocess
import sys
from collections.abc import Iterator

from ringmq.client import ConsumeFrom
from ringmq.client.blocking import Consumer
from ringmq.loadtest.siege.figures import ConsumerFigures

GROUP = "siege-consumer"
ADDRESS_SPACE_BYTES = 2 << 30
POLL_MS = 200
END_TIMEOUT_S = 60.0


class PollingConsumer:
    """The process, from the side of the siege."""

    def __init__(self, name_server: str, topic: str) -> None:
        command = [sys.executable, "-m", "ringmq.loadtest.siege.polling", name_server, topic]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the consumer does not start: {self._process.communicate()[1][-2000:]}")

    def end(self) -> ConsumerFigures:
        """End the consumer, and return its figures."""
        try:
            out, errors = self._process.communicate("", timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return ConsumerFigures(0, 0, 0, fault="it does not end")
        if self._process.returncode:
            last = errors.strip().splitlines()[-1:] or [f"status {self._process.returncode}"]
            return ConsumerFigures(0, 0, 0, fault=last[0][:200])
        return ConsumerFigures(**json.loads(out))

    def close(self) -> None:
        """End the process in any state."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def polling_consumer(name_server: str, topic: str) -> Iterator[PollingConsumer]:
    """Yield a consumer that polls, and end it afterwards."""
    consumer = PollingConsumer(name_server, topic)
    try:
        yield consumer
    finally:
        consumer.close()


def main(name_server: str, topic: str) -> None:
    """Run the process."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    polled = unpacked_bytes = 0
    with Consumer(topic, name_server, GROUP, consume_from=ConsumeFrom.FIRST) as consumer:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            for message in consumer.poll(timeout_ms=POLL_MS):
                polled += 1
                unpacked_bytes += len(message.body)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps(dataclasses.asdict(ConsumerFigures(polled, unpacked_bytes, peak_bytes))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
