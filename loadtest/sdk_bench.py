"""Sends with the Python SDK as fast as one process can; prints one JSON object."""

import argparse
import asyncio
import json
import time
import zlib

from ringmq.client import Message, Producer

BATCH = 20
BATCHES_IN_FLIGHT = 16
PIPELINE = 256
BODY_BYTES = 1024
BODIES = 256
CHUNK = 4096  # messages between two looks at the clock
FILLER = (b"127.0.0.1 - - GET /presentations/logstash HTTP/1.1 200 7697 " * 20)[: BODY_BYTES - 16]


class Counted:
    """Makes messages and knows the sum of their CRC-32. Bodies come from a pool: the SDK is measured."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self._bodies = [b"%016d" % number + FILLER for number in range(BODIES)]
        self._crcs = [zlib.crc32(body) for body in self._bodies]

    def message(self) -> Message:
        """The next message."""
        number = self.count
        self.count += 1
        return Message(self.topic, self._bodies[number % BODIES], {"TAGS": "TagA", "KEYS": f"S{number}"})

    @property
    def crc_sum(self) -> int:
        """Of all messages made so far, modulo 2^64."""
        rounds, rest = divmod(self.count, BODIES)
        return (rounds * sum(self._crcs) + sum(self._crcs[:rest])) % 2**64


async def send_batches(producer: Producer, source: Counted, deadline: float) -> None:
    """Batches of 20, several of them in flight."""

    async def worker() -> None:
        while time.monotonic() < deadline:
            await producer.send_batch([source.message() for _ in range(BATCH)])

    await asyncio.gather(*(worker() for _ in range(BATCHES_IN_FLIGHT)))


async def send_each(producer: Producer, source: Counted, deadline: float) -> None:
    """Each message its own request and its own await, many tasks at once."""

    async def worker() -> None:
        while time.monotonic() < deadline:
            await producer.send(source.message())

    await asyncio.gather(*(worker() for _ in range(PIPELINE)))


async def send_pipelined(producer: Producer, source: Counted, deadline: float) -> None:
    """One await over many messages, each its own request."""
    while time.monotonic() < deadline:
        await producer.send_all((source.message() for _ in range(CHUNK)), pipeline=PIPELINE)


MODES = {"batch": send_batches, "pipelined": send_each, "send-all": send_pipelined}


async def measure(namesrv: str, topic: str, mode: str, seconds: float) -> dict[str, float]:
    """Warm up for a fifth of the time, then measure."""
    source = Counted(topic)
    send = MODES[mode]
    async with Producer(namesrv, "sdk_bench") as producer:
        await send(producer, source, time.monotonic() + seconds / 5)
        warm, begin = source.count, time.monotonic()
        await send(producer, source, begin + seconds)
        elapsed = time.monotonic() - begin
    count = source.count - warm
    return {
        "messages": count,
        "messages_per_s": count / elapsed,
        "all_messages": source.count,
        "crc_sum": source.crc_sum,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--mode", choices=sorted(MODES), default="batch")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.namesrv, options.topic, options.mode, options.seconds))))


if __name__ == "__main__":
    main()
