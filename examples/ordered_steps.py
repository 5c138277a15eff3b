"""Steps of orders, in order: the sharding key selects a queue per order, an ordered consumer reads, no event loop.

python examples/ordered_steps.py --namesrv 127.0.0.1:9876
"""

import argparse
import threading
from collections import defaultdict

from ringmq.client import ConsumeFrom, Message, MessageExt
from ringmq.client.blocking import Consumer, Producer

STEPS = ("placed", "paid", "packed", "sent")


def main(namesrv: str, topic: str, orders: int) -> None:
    """Send the steps of all orders in turn. The steps of each order stay in order, even if a handler fails."""
    with Producer(namesrv, "shop") as producer:
        for step in STEPS:
            for order in range(orders):
                producer.send(Message(topic, step.encode()), sharding_key=f"order-{order}")

    seen: dict[str, list[str]] = defaultdict(list)
    failed: set[str] = set()
    all_seen = threading.Event()

    def handle(message: MessageExt) -> None:
        order = message.properties["__SHARDINGKEY"]
        step = message.body.decode()
        if step == "paid" and order not in failed:
            failed.add(order)
            raise ConnectionError("the bank is away")  # the same message comes again before the next of its queue
        seen[order].append(step)
        if sum(map(len, seen.values())) == orders * len(STEPS):
            all_seen.set()

    with Consumer(topic, namesrv, f"steps_{topic}", ordered=True, consume_from=ConsumeFrom.FIRST) as consumer:
        thread = threading.Thread(target=consumer.run, args=(handle,), kwargs={"concurrency": 4})
        thread.start()
        if not all_seen.wait(60):
            raise SystemExit(f"not everything came: {dict(seen)}")
    thread.join()
    for name, steps in sorted(seen.items()):
        print(f"{name}: {' -> '.join(steps)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="OrderedSteps")
    parser.add_argument("--orders", type=int, default=3)
    options = parser.parse_args()
    main(options.namesrv, options.topic, options.orders)
