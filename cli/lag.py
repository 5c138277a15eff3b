"""The lag of groups: messages that they have not consumed, and the age of the oldest one.

A group that pops may have acknowledged messages behind an open one. They do not count where the broker tells the open
messages of a queue. RocketMQ's brokers tell offsets alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ringmq.cli.admin import Admin
from ringmq.remoting.admin_bodies import ConsumeOffset, ConsumeStats
from ringmq.remoting.message_queue import MessageQueue

GROUPS_AT_ONCE = 8
"""A broker may have thousands of groups, and each takes some requests."""
COLUMNS = ("lag", "inFlight", "lagMs")
"""Fields of a group: messages that it has not consumed, those of them that it has got, the age of the oldest one."""


def in_flight(entry: ConsumeOffset) -> int:
    """Messages of a queue that the group has got and not consumed."""
    return max(0, entry.pull_offset - entry.consumer_offset) if entry.open_messages is None else entry.open_messages


async def delays_of(admin: Admin, group: str, stats: ConsumeStats) -> dict[MessageQueue, int]:
    """By queue with a lag, the age in ms of the oldest message that the group has not consumed."""
    late = {queue for queue, entry in stats.offsets.items() if entry.lag > 0}
    found = await admin.delays(group, sorted({queue.topic for queue in late})) if late else {}
    return {queue: ms for queue, ms in found.items() if queue in late and ms}


def sums(stats: ConsumeStats, delays: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """The fields COLUMNS of all queues together. `lagMs` is None without a lag."""
    entries = stats.offsets.values()
    values = (sum(max(0, one.lag) for one in entries), sum(map(in_flight, entries)), max(delays.values(), default=None))
    return dict(zip(COLUMNS, values, strict=True))


async def lags(admin: Admin, groups: Iterable[str], topic: str | None = None) -> dict[str, dict[str, Any]]:
    """By group, the fields COLUMNS of one topic or of all."""

    async def one(group: str) -> dict[str, Any]:
        stats = await admin.progress(group, topic)
        return sums(stats, await delays_of(admin, group, stats))

    return await of_each(groups, one)


async def members_of(admin: Admin, groups: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By group, the fields `members` (their number), `consumeType` and `messageModel`: None without a member."""

    async def one(group: str) -> dict[str, Any]:
        online = await admin.connections(group)
        if online is None:
            return {"members": 0, "consumeType": None, "messageModel": None}
        found = {"consumeType": online.consume_type, "messageModel": online.message_model}
        return {"members": len(online.connections), **found}

    return await of_each(groups, one)


async def of_each(groups: Iterable[str], ask: Callable[[str], Awaitable[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """By group, what `ask` returns for it, GROUPS_AT_ONCE at a time."""
    limit = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def one(group: str) -> tuple[str, dict[str, Any]]:
        async with limit:
            return group, await ask(group)

    return dict(await asyncio.gather(*map(one, groups)))
