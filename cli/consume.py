"""`ringmq consume`: a member of a consumer group that prints its messages. It pulls, or pops single messages."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import open_admin
from ringmq.cli.arguments import Seconds, duration
from ringmq.cli.message_body import body_fields
from ringmq.cli.output import print_body, print_line, say
from ringmq.cli.running import run, until_signalled
from ringmq.client import (
    ConnectError,
    ConsumeFrom,
    Consumer,
    MessageExt,
    PoppedMessage,
    ReceiptExpiredError,
    RequestTimeoutError,
    RouteError,
    SimpleConsumer,
    TlsError,
)

BATCH_MESSAGES_MAX = 1024
POP_MESSAGES_MAX, WAIT_S = 32, 15.0
"""Messages of one pop, and the time that it waits for the first one."""
INVISIBLE = timedelta(seconds=60)
INVISIBLE_MAX = timedelta(days=30)


@click.command()
@click.argument("topic")
@click.option(
    "-g", "--group", default="ringmq_cli", show_default=True, help="Consumer group, which stores its offsets."
)
@click.option("-t", "--tags", default="*", show_default=True, help="Tag expression, such as 'TagA || TagB'.")
@click.option(
    "--from", "begin", default="first", show_default=True, metavar="first|last|MS",
    help="Start of a new group; a time is in ms since 1970.",
)  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("--timeout", type=Seconds(0.001), metavar="SECONDS", help="Stop after this long without a message.")
@click.option("-v", "--verbose", is_flag=True, help="Queue, offset, keys and tags before each body.")
@click.option("--pop", is_flag=True, help="Pop single messages: members share all queues, and each message is its own.")
@click.option(
    "--invisible", type=duration, metavar="TIME",
    help="Of --pop: a message without an acknowledgement comes again after this time, such as 90s; default: 60s.",
)  # fmt: skip
@click.option("--no-ack", is_flag=True, help="Of --pop: acknowledge nothing, so that all messages come again.")
@client_options
def consume(
    topic: str,
    group: str,
    tags: str,
    begin: str,
    count: int | None,
    timeout: float | None,
    verbose: bool,
    pop: bool,
    invisible: timedelta | None,
    no_ack: bool,
    access: Access,
    output: str,
) -> None:
    """Print the messages of TOPIC, one body per line, until stopped. With -o json, one object per line."""
    start, timestamp_ms = _begin(begin)
    timeout_ms = None if timeout is None else max(1, int(timeout * 1000))
    invisible_ms = _invisible_ms(pop, invisible, no_ack, start)

    async def work() -> None:
        if pop:
            popper = SimpleConsumer({topic: tags}, access.namesrv, group, consume_from=start, settings=access.settings)
            await _tell_if_missing(access, topic)
            await _pop(popper, count, timeout, invisible_ms, acks=not no_ack, output=output, verbose=verbose)
            return
        consumer = Consumer(
            {topic: tags},
            access.namesrv,
            group,
            consume_from=start,
            timestamp_ms=timestamp_ms,
            settings=access.settings,
        )
        await _tell_if_missing(access, topic)
        await _consume(consumer, count, timeout_ms, output, verbose)

    run(until_signalled(work()))


async def _consume(consumer: Consumer, count: int | None, timeout_ms: int | None, output: str, verbose: bool) -> None:
    left = count
    async with consumer:
        while left is None or left > 0:
            wanted = BATCH_MESSAGES_MAX if left is None else min(left, BATCH_MESSAGES_MAX)
            messages = await consumer.poll(wanted, timeout_ms)
            if not messages:
                break
            for message in messages:
                _show(message, output, verbose)
            sys.stdout.flush()
            consumer.ack(messages)
            left = None if left is None else left - len(messages)


async def _pop(
    consumer: SimpleConsumer, count: int | None, timeout_s: float | None, invisible_ms: int, *, acks: bool,
    output: str, verbose: bool,
) -> None:  # fmt: skip
    async with consumer:
        left, silent_s = count, time.monotonic()
        while left is None or left > 0:
            wait_s = WAIT_S if timeout_s is None else min(WAIT_S, silent_s + timeout_s - time.monotonic())
            if wait_s <= 0:
                break
            wanted = POP_MESSAGES_MAX if left is None else min(left, POP_MESSAGES_MAX)
            try:
                messages = await consumer.receive(wanted, wait_ms=max(1, int(wait_s * 1000)), invisible_ms=invisible_ms)
            except (ConnectError, RequestTimeoutError, RouteError) as error:  # after the whole wait
                if timeout_s is not None or not _may_pass(error):
                    raise
                say(f"{error}; trying again", err=True)
                continue
            for message in messages:
                _show(message, output, verbose)
            if not messages:
                continue
            sys.stdout.flush()
            if acks:
                await _ack(consumer, messages, is_endless=timeout_s is None)
            left, silent_s = None if left is None else left - len(messages), time.monotonic()


def _may_pass(error: Exception) -> bool:
    return error.may_pass if isinstance(error, RouteError) else not isinstance(error, TlsError)


async def _ack(consumer: SimpleConsumer, messages: list[PoppedMessage], *, is_endless: bool) -> None:
    """Acknowledge messages. Those whose time is over are printed again by some member: that is no error here. Nor is a
    broker that is away, to a command without an end."""
    try:
        await consumer.ack(messages)
    except ReceiptExpiredError as error:
        say(f"{error}; give --invisible a longer time", err=True)
    except (ConnectError, RequestTimeoutError, RouteError) as error:  # after some tries
        if not is_endless or not _may_pass(error):
            raise
        say(f"{error}; messages without an acknowledgement come again", err=True)


async def _tell_if_missing(access: Access, topic: str) -> None:
    """Print a hint if the topic does not exist: a mistyped name looks like a topic without messages.

    Raises `RingmqError` if no name server answers: a consumer would wait for one without end.
    """
    async with open_admin(access.namesrv, access.settings) as admin:
        if await admin.route(topic) is None:
            say(f"topic {topic} does not exist yet; waiting for its first message", err=True)


def _invisible_ms(pop: bool, invisible: timedelta | None, no_ack: bool, start: ConsumeFrom) -> int:
    """The time in ms. Raises click.UsageError for options that do not fit together."""
    for option, is_given in (("--invisible", invisible is not None), ("--no-ack", no_ack)):
        if is_given and not pop:
            raise click.UsageError(f"{option} belongs to --pop")
    if pop and start is ConsumeFrom.TIMESTAMP:
        raise click.BadParameter("a group that pops begins at first or last, not at a time", param_hint="--from")
    chosen = INVISIBLE if invisible is None else invisible
    if not timedelta() < chosen <= INVISIBLE_MAX:
        raise click.BadParameter("it is not between 1ms and 30d", param_hint="--invisible")
    return chosen // timedelta(milliseconds=1)


def _begin(text: str) -> tuple[ConsumeFrom, int]:
    if text in ("first", "last"):
        return (ConsumeFrom.FIRST if text == "first" else ConsumeFrom.LAST), 0
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise click.BadParameter(f"{text!r} is neither first nor last nor a time in ms", param_hint="--from")
    return ConsumeFrom.TIMESTAMP, int(text)


def _show(message: MessageExt, output: str, verbose: bool) -> None:
    if output == "json":
        print_line(_fields(message))
        return
    keys = " ".join(message.keys) or "-"
    place = f"{message.broker_name}/{message.queue_id} {message.queue_offset}"
    print_body(message.body, f"[{place}] keys {keys} tags {message.tags or '-'} " if verbose else "")


def _fields(message: MessageExt) -> dict[str, Any]:
    """Return all fields of a message. A body that is not UTF-8 becomes Base64 under `bodyBase64`."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "messageId": message.msg_id,
        "keys": message.keys,
        "tags": message.tags,
        "properties": message.properties,
        "bornMs": message.born_timestamp_ms,
        "storeMs": message.store_timestamp_ms,
        "reconsumeTimes": message.reconsume_times,
    }
    if isinstance(message, PoppedMessage):
        fields["invisibleUntilMs"] = message.invisible_until_ms
    return fields | body_fields(message.body)
