"""Reads of a drill's topic, from any broker that has it."""

import asyncio
import time
from collections.abc import Callable, Sequence

from ringmq.client import RingmqError
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.load import Course
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import PullSysFlag
from ringmq.remoting.message import MessageExt, decode_messages

TOPIC = "Drill"
QUEUES = 4
TIMEOUT_MS = 3000
"""Time limit of a request while workers are killed: one that was lost is asked again."""
PATIENT_MS = 60_000
"""Time limit of a request that no fault can lose."""
AGAIN_S = 0.01
Place = tuple[str, int]
"""Topic and queue id."""


async def pull(
    client: RemotingClient,
    address: str,
    queue_id: int,
    queue_offset: int,
    topic: str = TOPIC,
    expression: str | None = None,
    count: int = 32,
    timeout_ms: int = TIMEOUT_MS,
) -> tuple[list[MessageExt], int]:
    """Return up to `count` messages from a queue offset on, and the next offset. Raises the client's errors.

    `expression` is an SQL92 condition.
    """
    header = {
        "consumerGroup": "drill_reader", "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(queue_offset), "maxMsgNums": str(count),
        "sysFlag": str(int(PullSysFlag.SUBSCRIPTION)), "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": expression or "*", "subVersion": "0", "expressionType": "SQL92" if expression else "TAG",
    }  # fmt: skip
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    answer = await client.invoke(address, request, timeout_ms=timeout_ms)
    next_offset = int(answer.ext_fields.get("nextBeginOffset", queue_offset))
    if answer.code != 0:
        return [], next_offset if answer.code in (20, 21) else queue_offset
    return list(decode_messages(answer.body)), next_offset


async def read_up_to(
    client: RemotingClient, address: str, queue_id: int, end: int, take: Callable[[MessageExt], None], timeout_s: float
) -> None:
    """Give `take` all messages below the queue offset `end`. A pull that fails is repeated.

    Raises the client's error of the last pull if none succeeds within `timeout_s`.
    """
    queue_offset, deadline = 0, time.monotonic() + timeout_s
    while queue_offset < end:
        try:
            messages, queue_offset = await pull(client, address, queue_id, queue_offset)
        except (RingmqError, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(AGAIN_S)  # poll
            continue
        deadline = time.monotonic() + timeout_s
        for message in messages:
            take(message)


async def follow(client: RemotingClient, course: Course, place: Place, take: Callable[[MessageExt], None]) -> None:
    """Give `take` all readable messages of a queue while the drill runs."""
    (topic, queue_id), queue_offset = place, 0
    while course.is_running():
        try:
            messages, queue_offset = await pull(client, course.address(), queue_id, queue_offset, topic)
        except (RingmqError, OSError):
            await asyncio.sleep(AGAIN_S)
            continue
        for message in messages:
            take(message)
        if not messages:
            await asyncio.sleep(AGAIN_S / 2)  # poll


async def read_until(
    client: RemotingClient,
    course: Course,
    places: Sequence[Place],
    take: Callable[[MessageExt], None],
    has_all: Callable[[], bool],
) -> None:
    """Give `take` the messages of queues until `has_all`, or until none of them gives a message for a while."""
    offsets, deadline = dict.fromkeys(places, 0), time.monotonic() + course.timeout_s
    while time.monotonic() < deadline:
        found = 0
        for topic, queue_id in places:
            place = topic, queue_id
            try:
                messages, offsets[place] = await pull(client, course.address(), queue_id, offsets[place], topic)
            except (RingmqError, OSError):
                continue
            found += len(messages)
            for message in messages:
                take(message)
        if found:
            deadline = time.monotonic() + course.timeout_s
        elif has_all():
            return
        else:
            await asyncio.sleep(AGAIN_S)  # poll


async def max_offset(
    client: RemotingClient, address: str, queue_id: int, topic: str = TOPIC, timeout_ms: int = TIMEOUT_MS
) -> int:
    """Return the offset behind the last readable message."""
    header = {"topic": topic, "queueId": str(queue_id)}
    answer = await client.call(address, RequestCode.GET_MAX_OFFSET, header, timeout_ms=timeout_ms)
    return int(answer.ext_fields["offset"])


def id_of(message: MessageExt) -> str:
    """Return the id that the drill's producer gave the message."""
    return bytes(message.body).rstrip(b".").decode()
