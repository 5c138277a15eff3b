"""Send some messages and read them back: the SDK on an event loop.

python examples/send_and_read.py --namesrv 127.0.0.1:9876
"""

import argparse
import asyncio

from ringmq.client import ConsumeFrom, Consumer, Producer, compose_message


async def main(namesrv: str, topic: str, count: int) -> None:
    """Send messages with many sends in flight, in order of results, then read them back."""
    async with Producer(namesrv, "shop") as producer:
        messages = [compose_message(topic, f"order {n}".encode(), tags="new", keys=f"order-{n}") for n in range(count)]
        results = await producer.send_all(messages)
        print(f"sent {len(results)}, the last is {results[-1].message_id} in {results[-1].queue}")
    async with Consumer({topic: "new"}, namesrv, f"billing_{topic}", consume_from=ConsumeFrom.FIRST) as consumer:
        async with asyncio.timeout(30):
            for number in range(count):
                message = await anext(consumer)
                print(f"{number + 1}: {message.body.decode()}, keys {message.keys}")
                consumer.ack(message)  # the next `anext` would do it, but the last message has none


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="SendAndRead")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()
    asyncio.run(main(options.namesrv, options.topic, options.count))
