"""Sends or consumes with the Python SDK at full speed of one process. Prints one JSON object."""

import argparse
import asyncio
import json
import logging
import time
import zlib

from ringmq.client import ConsumeFrom, Consumer, Message, MessageExt, Producer, PushConsumer, SimpleConsumer, blocking

BATCH = 20
BATCHES_IN_FLIGHT = 16
PIPELINE = 256
BODY_BYTES = 1024
BODIES = 256
HANDLERS, HANDLER_S = 64, 0.001
CHUNK = 4096  # messages between two looks at the clock
FILLER = (b"127.0.0.1 - - GET /presentations/logstash HTTP/1.1 200 7697 " * 20)[: BODY_BYTES - 16]


class Counted:
    """Makes messages and the sum of their CRC-32. Bodies come from a pool, so the SDK is measured."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self._bodies = [b"%016d" % number + FILLER for number in range(BODIES)]
        self._crcs = [zlib.crc32(body) for body in self._bodies]

    def message(self) -> Message:
        """Return the next message."""
        number = self.count
        self.count += 1
        return Message(self.topic, self._bodies[number % BODIES], {"TAGS": "TagA", "KEYS": f"S{number}"})

    @property
    def crc_sum(self) -> int:
        """The sum over all messages so far, modulo 2^64."""
        rounds, rest = divmod(self.count, BODIES)
        return (rounds * sum(self._crcs) + sum(self._crcs[:rest])) % 2**64


async def send_batches(producer: Producer, source: Counted, deadline: float) -> None:
    """Send batches of 20, several of them in flight."""

    async def worker() -> None:
        while time.monotonic() < deadline:
            await producer.send_batch([source.message() for _ in range(BATCH)])

    await asyncio.gather(*(worker() for _ in range(BATCHES_IN_FLIGHT)))


async def send_each(producer: Producer, source: Counted, deadline: float) -> None:
    """Send each message in its own request and its own await, many tasks at once."""

    async def worker() -> None:
        while time.monotonic() < deadline:
            await producer.send(source.message())

    await asyncio.gather(*(worker() for _ in range(PIPELINE)))


async def send_pipelined(producer: Producer, source: Counted, deadline: float) -> None:
    """Send many messages in one await, each in its own request."""
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


def measure_one(namesrv: str, topic: str, seconds: float) -> dict[str, float]:
    """Send one message at a time with the blocking client, each after the answer to the last."""
    source = Counted(topic)
    with blocking.Producer(namesrv, "sdk_bench") as producer:

        def send_until(deadline: float) -> None:
            while time.monotonic() < deadline:
                producer.send(source.message())

        send_until(time.monotonic() + seconds / 5)
        warm, begin = source.count, time.monotonic()
        send_until(begin + seconds)
        elapsed = time.monotonic() - begin
    count = source.count - warm
    rate = count / elapsed
    return {"messages": count, "messages_per_s": rate, "all_messages": source.count, "crc_sum": source.crc_sum}


async def measure_consume(namesrv: str, topic: str, messages: int, seconds: float) -> dict[str, float]:
    """Consume with a new group from the topic's first message on.

    Time runs from the first message until `messages` or the end of the time.
    """
    count = size = first = 0
    group = f"sdk_bench_{topic}_{time.time_ns()}"
    async with Consumer(topic, namesrv, group, consume_from=ConsumeFrom.FIRST) as consumer:
        begin = last = time.monotonic()
        while count < messages and last - begin < seconds:
            batch = await consumer.poll(timeout_ms=10_000)
            if not batch:
                break
            size += sum(len(message.body) for message in batch)
            count += len(batch)
            last = time.monotonic()
            if not first:
                begin, first = last, count
    elapsed = last - begin
    rate = (count - first) / elapsed if elapsed else 0.0
    return {"messages": count, "messages_per_s": rate, "all_messages": count, "bytes": size}


async def measure_pops(namesrv: str, topic: str, tasks: int, count: int, seconds: float) -> dict[str, float]:
    """Receive `count` messages at a time by POP and acknowledge them together, in `tasks` tasks with one consumer.

    The topic has enough messages. Time runs from the first acknowledgement on. `duplicates` are messages that came
    twice. `cpu_us` is the processor time of this process for a message.
    """
    seen: set[tuple[str, int, int]] = set()
    done = duplicates = 0
    begin, deadline, cpu_s = 0.0, float("inf"), 0.0
    group = f"sdk_pops_{topic}_{time.time_ns()}"
    async with SimpleConsumer(topic, namesrv, group, consume_from=ConsumeFrom.FIRST) as consumer:

        async def work() -> None:
            nonlocal done, duplicates, begin, deadline, cpu_s
            while time.monotonic() < deadline and (messages := await consumer.receive(count, wait_ms=1000)):
                await consumer.ack(messages)
                if not begin:
                    begin, cpu_s = time.monotonic(), time.process_time()
                    deadline = begin + seconds
                else:
                    done += len(messages)
                known = len(seen)
                seen.update((message.broker_name, message.queue_id, message.queue_offset) for message in messages)
                duplicates += len(messages) - (len(seen) - known)

        await asyncio.gather(*(work() for _ in range(tasks)))
        elapsed, cpu_s = time.monotonic() - begin, time.process_time() - cpu_s
    rate, cpu_us = done / elapsed, 1e6 * cpu_s / max(1, done)
    return {"messages": done, "messages_per_s": rate, "duplicates": duplicates, "cpu_us": cpu_us}


class Warnings(logging.Handler):
    """Counts the warnings of the SDK, such as acknowledgements without an answer."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count one."""
        self.count += 1


async def sleeps_cpu_us(seconds: float) -> float:
    """Return the processor time for a sleep of `HANDLER_S`, in `HANDLERS` tasks that do nothing else."""
    count, deadline, cpu_s = 0, time.monotonic() + seconds, time.process_time()

    async def work() -> None:
        nonlocal count
        while time.monotonic() < deadline:
            await asyncio.sleep(HANDLER_S)
            count += 1

    await asyncio.gather(*(work() for _ in range(HANDLERS)))
    return 1e6 * (time.process_time() - cpu_s) / count


async def measure_push(namesrv: str, topic: str, seconds: float) -> dict[str, float]:
    """Handle messages by POP in `HANDLERS` handlers that sleep `HANDLER_S`, and acknowledge them.

    `to_handlers` is the share of the messages that the handlers could do, `cpu_to_sleeps` the processor time for a
    message by that for its sleep alone. The topic has enough messages. Time runs from the first message on, to the
    answer of the last acknowledgement. `warnings` counts what the SDK has reported.
    """
    sleep_us, warnings = await sleeps_cpu_us(seconds / 5), Warnings()
    logging.getLogger("ringmq.client").addHandler(warnings)
    seen: set[tuple[str, int, int]] = set()
    done, begin, begin_cpu_s, over = 0, 0.0, 0.0, asyncio.Event()

    async def handle(message: MessageExt) -> None:
        nonlocal done, begin, begin_cpu_s
        if not begin:
            begin, begin_cpu_s = time.monotonic(), time.process_time()
            asyncio.get_running_loop().call_later(seconds, over.set)
        await asyncio.sleep(HANDLER_S)
        seen.add((message.broker_name, message.queue_id, message.queue_offset))
        done += 1

    group = f"sdk_push_{topic}_{time.time_ns()}"
    async with PushConsumer(topic, namesrv, group, consume_from=ConsumeFrom.FIRST) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=HANDLERS))
        ended = asyncio.create_task(over.wait())
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        await consumer.close()
        await running
    elapsed, cpu_us = time.monotonic() - begin, 1e6 * (time.process_time() - begin_cpu_s) / done
    rate = done / elapsed
    return {
        "messages": done,
        "messages_per_s": rate,
        "to_handlers": rate * HANDLER_S / HANDLERS,
        "cpu_us": cpu_us,
        "cpu_to_sleeps": cpu_us / sleep_us,
        "duplicates": done - len(seen),
        "warnings": warnings.count,
    }


async def measure_pop_one(namesrv: str, topic: str, seconds: float) -> dict[str, float]:
    """One message after the other by POP: a round trip for it, and one for its acknowledgement.

    `to_round_trips` is the ratio to sends, one after the other, of the same time.
    """
    report = await measure_pops(namesrv, topic, 1, 1, seconds)
    source, end = Counted(topic), time.monotonic() + seconds
    async with Producer(namesrv, "sdk_bench") as producer:
        await producer.send(source.message())
        begin = time.monotonic()
        while time.monotonic() < end:
            await producer.send(source.message())
        rate = (source.count - 1) / (time.monotonic() - begin)
    return report | {"to_round_trips": report["messages_per_s"] / rate}


POPS = {"pop-batch": (1, 32), "pop-tasks": (64, 1)}
"""Mode -> tasks of one consumer, messages of a pop."""
POP_ONE = "pop-one"
PUSH = "push"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--mode", choices=[*sorted(MODES), "one", "consume", *POPS, POP_ONE, PUSH], default="batch")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--messages", type=int, default=0, help="how many there are to consume")
    options = parser.parse_args()
    if options.mode == "one":
        report = measure_one(options.namesrv, options.topic, options.seconds)
    elif options.mode in POPS:
        report = asyncio.run(measure_pops(options.namesrv, options.topic, *POPS[options.mode], options.seconds))
    elif options.mode == POP_ONE:
        report = asyncio.run(measure_pop_one(options.namesrv, options.topic, options.seconds))
    elif options.mode == PUSH:
        report = asyncio.run(measure_push(options.namesrv, options.topic, options.seconds))
    elif options.mode == "consume":
        report = asyncio.run(measure_consume(options.namesrv, options.topic, options.messages, options.seconds))
    else:
        report = asyncio.run(measure(options.namesrv, options.topic, options.mode, options.seconds))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
