"""A worker that ends well: SIGTERM stops the reading, lets running handlers finish, commits, and leaves the group.

python examples/worker.py --namesrv 127.0.0.1:9876 --topic Work
"""

import argparse
import asyncio
import signal

from ringmq.client import ConsumeFrom, Consumer, MessageExt


async def main(namesrv: str, topic: str, group: str) -> None:
    """Handle up to eight messages at a time. The next owner of a queue continues behind the handled messages."""
    handled = 0

    async def handle(message: MessageExt) -> None:
        nonlocal handled
        await asyncio.sleep(0.05)  # span: the work
        handled += 1
        print(f"handled {message.body.decode()}", flush=True)

    consumer = Consumer(topic, namesrv, group, consume_from=ConsumeFrom.FIRST, drain_timeout_ms=30_000)
    async with consumer:
        closing: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: closing.append(loop.create_task(consumer.close())))
        print("ready", flush=True)
        await consumer.run(handle, concurrency=8)
        await asyncio.gather(*closing)
    print(f"ended after {handled}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="Work")
    parser.add_argument("--group", default="workers")
    options = parser.parse_args()
    asyncio.run(main(options.namesrv, options.topic, options.group))
