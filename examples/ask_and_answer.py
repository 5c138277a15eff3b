"""Sends requests over a topic and waits for the replies.

python examples/ask_and_answer.py --namesrv 127.0.0.1:9876
"""

import argparse
import asyncio

from ringmq.client import Consumer, Message, Producer


async def main(namesrv: str, topic: str) -> None:
    """A consumer replies to each message that it reads. The producer waits for each reply."""
    async with Producer(namesrv, "asking") as asking, Producer(namesrv, "answering") as answering:
        await asking.send(Message(topic, b"makes the topic"))
        async with Consumer(topic, namesrv, f"answering_{topic}") as consumer, asyncio.TaskGroup() as tasks:

            async def answer() -> None:
                async for message in consumer:
                    consumer.ack(message)  # another run does not answer it again: its program has gone
                    if "CORRELATION_ID" in message.properties:
                        await answering.reply(message, message.body.upper())

            task = tasks.create_task(answer())  # an error in it ends the requests, too
            for word in (b"one", b"two", b"three"):
                reply = await asking.request(Message(topic, word), 10_000)
                print(f"{word.decode()} -> {reply.body.decode()}")
            task.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="AskAndAnswer")
    options = parser.parse_args()
    asyncio.run(main(options.namesrv, options.topic))
