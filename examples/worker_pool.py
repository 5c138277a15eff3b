"""50 workers share the messages of 4 queues by POP: more time while the work runs, a second try after a fault.

python examples/worker_pool.py --namesrv 127.0.0.1:9876 --topic Resize --count 500
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ringmq.client import ConsumeFrom, PoppedMessage, Producer, SimpleConsumer, compose_message

WORKERS = 50
INVISIBLE_MS = 10_000


async def main(namesrv: str, topic: str, count: int) -> None:
    """Send jobs, and let the workers do all of them. Each worker has a job at a time, from any queue."""
    async with Producer(namesrv, "shop") as producer:
        sent = await producer.send_all([compose_message(topic, f"picture {n}".encode()) for n in range(count)])
        print(f"sent {count} jobs to {len({result.queue for result in sent})} queues")
    consumer = SimpleConsumer(topic, namesrv, f"resizers_{topic}", consume_from=ConsumeFrom.FIRST)
    done: Counter[bytes] = Counter()
    by_worker: Counter[int] = Counter()
    again = 0

    async def work(number: int) -> None:
        nonlocal again
        while len(done) < count:
            for message in await consumer.receive(1, wait_ms=1000, invisible_ms=INVISIBLE_MS):
                try:
                    async with renewed(consumer, message):
                        await resize(message)
                    await consumer.ack(message)
                except ConnectionError:
                    again += 1
                    await consumer.nack(message)  # another worker may have it at once
                    continue
                done[message.body] += 1
                by_worker[number] += 1

    async with consumer, asyncio.timeout(120):
        await asyncio.gather(*map(work, range(WORKERS)))
    print(f"{len(by_worker)} workers did {len(done)} jobs, {again} of them at the second try")


async def resize(message: PoppedMessage) -> None:
    """The work. It fails now and then, at the first try."""
    await asyncio.sleep(random.uniform(0.005, 0.05))  # span: the work
    if message.attempt == 1 and message.body.endswith(b"7"):
        raise ConnectionError("the store of pictures is away")


@asynccontextmanager
async def renewed(consumer: SimpleConsumer, message: PoppedMessage) -> AsyncIterator[None]:
    """Keep a message invisible to other workers while the block runs."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(INVISIBLE_MS / 2000)  # span: half of the time
            await consumer.change_invisible(message, INVISIBLE_MS)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="Resize")
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args()
    asyncio.run(main(options.namesrv, options.topic, options.count))
