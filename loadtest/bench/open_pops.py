"""The rows of POP with many open messages: bytes of log of slow handlers, and acknowledgements behind a restart."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.bench.pops import BROKER_NAME, POP_MAX, SETTINGS, fill
from ringmq.loadtest.bench.rows import Context, Run
from ringmq.loadtest.bench.stored import runtime_info
from ringmq.loadtest.load.pops import Popped, Popper, Receipt
from ringmq.loadtest.load.targets import RingmqTarget, Target
from ringmq.loadtest.measuring.measurement import RATE, Measurement
from ringmq.remoting.client_headers import AckMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame

OPEN, HANDLER_S = 10_000, 30.0
INVISIBLE_MS = 300_000
"""Longer than a handler has a message."""
LONG_MS = 3_600_000
"""Longer than a run."""
OPEN_IN_LOG, ACKED_MAX = 1_000_000, 300_000
POPS_AT_ONCE = 16
CONNECTIONS, IN_FLIGHT = 4, 64
SUCCESS = b'"code":0,'
"""Part of an answer without error."""


# -- bytes of log ------------------------------------------------------------------------------------------


def log_bytes_row(messages: int = OPEN, handler_s: float = HANDLER_S) -> Run:
    """Return a run that pops 32 at a time, holds so many messages for some seconds, and acknowledges each pop by one
    request. `log_bytes`: growth of the log by message, without the sends. Counts if no message came back."""

    def run(context: Context, target: Target) -> Measurement:
        topic = context.topic("pop_log_bytes")
        filled = fill(context, target, topic, messages)
        begin = _log_end(target.port)
        done, again = asyncio.run(_handle(target.port, topic, filled, handler_s))
        grown = _log_end(target.port) - begin
        note = f"{done} of {filled} acknowledged, {again} came back"
        return Measurement({"log_bytes": grown / max(done, 1)}, ok=done == filled and not again, note=note)

    return run


def _log_end(port: int) -> int:
    return int(runtime_info(port)["commitLogMaxOffset"])


async def _handle(port: int, topic: str, messages: int, handler_s: float) -> tuple[int, int]:
    """(messages that are acknowledged, messages that came back)."""
    client, held = RemotingClient(), deque[tuple[float, list[Popped]]]()
    popper = Popper(client, lambda: f"127.0.0.1:{port}", BROKER_NAME, topic, topic)
    popped = done = again = 0
    try:
        while done < messages:
            found = await popper.pop(POP_MAX, INVISIBLE_MS) if popped < messages else []
            popped += len(found)
            again += sum(one.message.reconsume_times > 0 for one in found)
            if found:
                held.append((time.monotonic() + handler_s, found))
            elif not held:
                break
            while held and held[0][0] <= time.monotonic():
                _, over = held.popleft()
                done += len(over) * await popper.ack_all([one.receipt for one in over])
            if not found and held:
                await asyncio.sleep(max(0.0, held[0][0] - time.monotonic()))
    finally:
        await client.close()
    return done, again


# -- acknowledgements behind a restart ---------------------------------------------------------------------


def logged_acks_row(context: Context, system: str) -> Measurement:
    """Measure single acknowledgements behind a clean stop and a start, with check points of all open messages in the
    log, and without. `to_plain`: the one rate to the other. Counts if each acknowledgement is answered 0."""
    rates, note = [], []
    for exports in (False, True):
        settings = {**SETTINGS, "ringmqPopExportAtStop": str(exports).lower()}
        with closing(RingmqTarget(context.folder / "logged-acks", settings, context.cpus)) as target:
            topic = context.topic("pop_logged_acks")
            filled = fill(context, target, topic, min(OPEN_IN_LOG, context.messages_max))
            receipts = asyncio.run(_hold(target.port, topic, filled))
            target.restart(settings)
            frames = [_ack_frame(topic, receipt) for receipt in receipts[:ACKED_MAX]]
            began_s = time.monotonic()
            refused = _acknowledge(target.port, frames)
            rates.append((len(frames) - refused) / (time.monotonic() - began_s))
            note.append(f"{len(receipts)} open, {len(frames)} acknowledged, {refused} refused")
    values = {RATE: rates[1], "plain_per_s": rates[0], "to_plain": rates[1] / max(rates[0], 1e-9)}
    return Measurement(values, ok=all(" 0 refused" in text for text in note), note="; ".join(note))


async def _hold(port: int, topic: str, messages: int) -> list[Receipt]:
    """Pop all messages, one entry for each pop. Returns their receipts."""
    client, receipts = RemotingClient(), list[Receipt]()
    popper = Popper(client, lambda: f"127.0.0.1:{port}", BROKER_NAME, topic, topic)

    async def pop() -> None:
        while len(receipts) < messages and (found := await popper.pop(POP_MAX, LONG_MS)):
            receipts.extend(one.receipt for one in found)

    try:
        await asyncio.gather(*(pop() for _ in range(POPS_AT_ONCE)))
    finally:
        await client.close()
    return receipts


def _ack_frame(topic: str, receipt: Receipt) -> bytes:
    header = AckMessageRequestHeader(
        consumer_group=topic, topic=topic, queue_id=receipt.queue_id, extra_info=receipt.text(), offset=receipt.offset
    )
    return encode_frame(RemotingCommand.request(RequestCode.ACK_MESSAGE, header.encode()))


def _acknowledge(port: int, frames: Sequence[bytes]) -> int:
    """Send the frames in windows over some connections. Returns the number of answers other than 0."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    refused, step = 0, CONNECTIONS * IN_FLIGHT
    try:
        streams = [_answers(one) for one in sockets]
        for begin in range(0, len(frames), step):
            windows = [frames[at : at + IN_FLIGHT] for at in range(begin, min(begin + step, len(frames)), IN_FLIGHT)]
            for one, window in zip(sockets, windows, strict=False):
                one.sendall(b"".join(window))
            for stream, window in zip(streams, windows, strict=False):
                refused += sum(SUCCESS not in next(stream) for _ in window)
    finally:
        for one in sockets:
            one.close()
    return refused


def _answers(connection: socket.socket) -> Iterator[bytes]:
    """The frames of answers, each with its length."""
    data = b""
    while more := connection.recv(1 << 16):
        data += more
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4])):
            yield data[:end]
            data = data[end:]
