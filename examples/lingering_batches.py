"""Many tasks send single messages; the producer waits a few milliseconds and sends them as batches.

python examples/lingering_batches.py --namesrv 127.0.0.1:9876
"""

import argparse
import asyncio
import time

from ringmq.client import Message, Producer


async def send_many(namesrv: str, topic: str, count: int, linger_ms: int) -> float:
    """Return messages per second of `count` tasks."""
    async with Producer(namesrv, "measured", linger_ms=linger_ms) as producer:
        await producer.send(Message(topic, b"makes the topic and the connection"))
        began = time.perf_counter()
        await asyncio.gather(*(producer.send(Message(topic, b"%d" % number)) for number in range(count)))
        return count / (time.perf_counter() - began)


async def main(namesrv: str, topic: str, count: int) -> None:
    """Compare the rates with and without a linger time."""
    for linger_ms in (0, 5):
        rate = await send_many(namesrv, topic, count, linger_ms)
        print(f"linger {linger_ms} ms: {rate:,.0f} messages/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="LingeringBatches")
    parser.add_argument("--count", type=int, default=5000)
    options = parser.parse_args()
    asyncio.run(main(options.namesrv, options.topic, options.count))
