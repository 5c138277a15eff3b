"""`ringmq produce`: messages from options (-m), or one per line of a file or standard input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Any

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.arguments import duration, moment, pairs
from ringmq.cli.output import print_line, print_result, say
from ringmq.cli.running import run
from ringmq.client import Message, Producer, SendResult, compose_message
from ringmq.client.producing.send_request import DELAY_LEVEL_MAX, delayed_message

READ_BYTES = 256 * 1024
IN_FLIGHT = 256


@dataclass(frozen=True, slots=True)
class MessageForm:
    """The fields that all messages of one call share. `number_keys` adds each message's number as a key."""

    topic: str
    tag: str | None
    keys: Sequence[str]
    properties: dict[str, str]
    number_keys: bool
    delay_level: int | None
    delay: timedelta | None
    deliver_at: datetime | None

    def message(self, body: bytes, number: int) -> Message:
        """Return the message for one body. Raises ValueError."""
        keys = [*self.keys, str(number)] if self.number_keys else self.keys
        message = compose_message(
            self.topic, body, tags=self.tag, keys=keys, properties=self.properties, delay_level=self.delay_level
        )
        return delayed_message(message, self.delay, self.deliver_at)


@click.command()
@click.argument("topic")
@click.option("-m", "--message", "messages", multiple=True, help="A message; repeatable. Without -m, lines are read.")
@click.option("-f", "--file", "source", type=click.File("rb"), default="-", help="File of lines, - for standard input.")
@click.option("-t", "--tag", help="TAGS of every message.")
@click.option("-k", "--key", "keys", multiple=True, help="A key of every message; repeatable.")
@click.option("--number-keys", is_flag=True, help="The message's number (from 1) as key.")
@click.option("-p", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="User property; repeatable.")
@click.option(
    "--delay-level",
    type=click.IntRange(1, DELAY_LEVEL_MAX),
    metavar="N",
    help="Deliver after the N-th delay of the broker's messageDelayLevel; above the last one: after the last.",
)
@click.option("--delay", type=duration, help="Deliver after this time, such as 500ms, 90s, 5m, 2h or 1d.")
@click.option(
    "--at",
    "deliver_at",
    type=moment,
    help="Deliver at this time, such as 2026-12-01T09:00 (local time) or 2026-12-01T09:00Z.",
)
@click.option("-b", "--batch", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Messages a request.")
@click.option("-g", "--group", default="ringmq_cli_producer", show_default=True, help="Producer group.")
@client_options
def produce(
    topic: str,
    messages: tuple[str, ...],
    source: IO[bytes],
    batch: int,
    group: str,
    access: Access,
    output: str,
    **form: Any,
) -> None:
    """Send messages to TOPIC.

    Prints where each message given with -m was stored, or a summary of the lines that were read (empty ones are
    skipped). With -o json there
    is one object per request.
    """
    _check_delays(form, batch)
    shape = MessageForm(topic, properties=pairs(form.pop("properties"), "--property"), **form)
    if "" in messages:
        raise click.BadParameter("a message must not be empty", param_hint="-m")
    bodies = _given(messages) if messages else _lines(source)
    run(_produce(access, group, shape, bodies, batch, output, show_each=bool(messages)))


def _check_delays(form: dict[str, Any], batch: int) -> None:
    options = {"--delay-level": "delay_level", "--delay": "delay", "--at": "deliver_at"}
    given = [option for option, name in options.items() if form[name] is not None]
    if len(given) > 1:
        raise click.BadParameter(f"leave out {' and '.join(given[1:])}", param_hint=given[0])
    if given and batch > 1:
        raise click.BadParameter("messages of a batch cannot be delayed; leave out --batch", param_hint=given[0])


async def _produce(
    access: Access,
    group: str,
    form: MessageForm,
    bodies: AsyncIterator[list[bytes]],
    batch: int,
    output: str,
    *,
    show_each: bool,
) -> None:
    sent, begun = 0, time.monotonic()
    async with Producer(access.namesrv, group, settings=access.settings) as producer:
        async for chunk in bodies:
            messages = [form.message(body, sent + at) for at, body in enumerate(chunk, start=1)]
            for result in await _send(producer, messages, batch):
                _show(form, result, output, show_each)
            sent += len(messages)
    if output == "table" and not show_each:
        seconds = max(time.monotonic() - begun, 1e-9)
        say(f"{sent} messages sent to {form.topic} in {seconds:.2f} s ({sent / seconds:.0f}/s)")


async def _send(producer: Producer, messages: list[Message], batch: int) -> list[SendResult]:
    if batch == 1:
        return await producer.send_all(messages, pipeline=IN_FLIGHT)
    groups = [messages[at : at + batch] for at in range(0, len(messages), batch)]
    return list(await asyncio.gather(*[producer.send_batch(part) for part in groups]))


def _show(form: MessageForm, result: SendResult, output: str, show_each: bool) -> None:
    fields: dict[str, object] = {
        "topic": form.topic,
        "broker": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
        "status": result.status.name,
        "messageIds": list(result.message_ids),
        "offsetMessageIds": list(result.offset_message_ids),
    }
    waits = ""
    if form.delay_level:
        waits, fields["delayLevel"] = f"waits at level {form.delay_level}", form.delay_level
    elif result.recall_handle:
        waits, fields["recallHandle"] = f"waits, recall handle {result.recall_handle}", result.recall_handle
    if waits:
        del fields["queueOffset"]  # it is a place among the waiting messages
    if output == "json":
        print_line(fields)
    elif show_each:
        where = waits or f"offset {fields['queueOffset']}"
        place = f"{form.topic}/{fields['broker']}/{fields['queueId']} {where}"
        print_result(output, fields, f"{' '.join(result.message_ids)}  {place}  {fields['status']}")


async def _given(messages: Iterable[str]) -> AsyncIterator[list[bytes]]:
    yield [message.encode() for message in messages]


async def _lines(source: IO[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield lists of lines as they become available, so lines of an open pipe are sent at once.

    Empty lines are skipped: brokers refuse a message without a body.
    """
    read = getattr(source, "read1", source.read)
    rest = b""
    while data := await asyncio.to_thread(read, READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if bodies := _not_empty(lines):
            yield bodies
    if bodies := _not_empty([rest]):
        yield bodies


def _not_empty(lines: list[bytes]) -> list[bytes]:
    return [body for line in lines if (body := line.removesuffix(b"\r"))]
