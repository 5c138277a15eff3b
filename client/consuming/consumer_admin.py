"""Answers of a consumer to operators' requests, which its broker forwards.

`mqadmin consumerStatus` (307), `getConsumerStatus` (221), `resetOffsetByTime` (220), and consuming one message now
(309).
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringmq.client.connections.remoting_client import Deferred, RemotingClient
from ringmq.client.consuming.consume_retry import RetryLater
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.client.consuming.handler_runner import HandlerRunner
from ringmq.client.consuming.lock_renewal import LockRenewer
from ringmq.client.consuming.pull_decoding import read_messages, unpacked
from ringmq.client.consuming.queue_reader import QueueReader
from ringmq.client.errors import RingmqError
from ringmq.client.namespaces import without_namespace
from ringmq.client.runtimes.runtime import create_task
from ringmq.client.runtimes.waiting import PushedTasks
from ringmq.remoting import consumer_bodies as bodies
from ringmq.remoting.admin_bodies import decode_queue_offsets
from ringmq.remoting.admin_headers import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from ringmq.remoting.codes import VERSION_V5_3_3, RequestCode, ResponseCode, version_name
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.consumer_bodies import ConsumerRunningInfo, ProcessQueueInfo
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.message import MessageExt, decode_message
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData

log = logging.getLogger("ringmq.client")

STACKS_CHARS_MAX = 256_000


@dataclass(frozen=True, slots=True)
class AdminRequests:
    """Answers for one consumer. `readers` and `subscriptions` are the consumer's own, current ones.

    `properties` returns values that only the consumer knows.
    """

    group: str
    client: RemotingClient
    readers: Mapping[MessageQueue, QueueReader]
    subscriptions: Mapping[str, SubscriptionData]
    stats: ConsumeStats
    locks: LockRenewer | None
    properties: Callable[[], dict[str, str]]
    runner: Callable[[], HandlerRunner[Any] | None]
    direct: PushedTasks = field(default_factory=PushedTasks)

    def serve(self, address: str, request: RemotingCommand) -> RemotingCommand | Deferred | None:
        """Return the answer to a request of the broker at `address`, None for other codes."""
        try:
            if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                return self._running_info(request)
            if request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                header = GetConsumerStatusRequestHeader.decode(request.ext_fields)
                found = offsets_of(self.readers.values(), header.topic) if header.group == self.group else {}
                return RemotingCommand.response_to(request, 0, body=bodies.encode_consumer_status(found))
            if request.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                reset = ResetOffsetRequestHeader.decode(request.ext_fields)
                if reset.group == self.group:
                    offsets = self._own_names(decode_queue_offsets(request.body))
                    create_task(self._reset(reset.topic, offsets), name="ringmq offset reset")
                return RemotingCommand.response_to(request, 0)
            if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
                return self._consume_directly(address, request)
        except RemotingError as error:
            return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, f"request {request.code}: {error}")
        return None

    def _running_info(self, request: RemotingCommand) -> RemotingCommand:
        header = GetConsumerRunningInfoRequestHeader.decode(request.ext_fields)
        if header.consumer_group != self.group:
            return self._not_here(request, header.consumer_group)
        info = running_info(
            self.readers.values(),
            self.subscriptions.values(),
            self.stats,
            time.monotonic(),
            properties=self.properties(),
            locks=self.locks,
            stacks=bool(header.jstack_enable),
        )
        return RemotingCommand.response_to(request, 0, body=info.encode())

    def _own_names(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        namespace = self.client.settings.namespace
        return {q._replace(topic=without_namespace(namespace, q.topic)): offset for q, offset in offsets.items()}

    def _consume_directly(self, address: str, request: RemotingCommand) -> RemotingCommand | Deferred:
        header = ConsumeMessageDirectlyRequestHeader.decode(request.ext_fields)
        if header.consumer_group != self.group:
            return self._not_here(request, header.consumer_group)
        runner = self.runner()
        if runner is None:
            remark = f"consumer of group {self.group} has no handler: its messages are taken by a loop"
            return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        stored, _ = decode_message(request.body)
        queue = MessageQueue(stored.topic, header.broker_name or "", stored.queue_id)
        namespace = self.client.settings.namespace
        message = read_messages(request.body, queue, 0, SubscriptionData(stored.topic), namespace)[0]
        if self.direct.full:
            remark = f"consumer of group {self.group} handles {self.direct.fill} directly: try again"
            return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        message = unpacked(message)
        work = self._answer_directly(address, request, runner, message)
        self.direct.start(work, len(message.body), "ringmq direct message")
        return Deferred.LATER

    async def _answer_directly(
        self, address: str, request: RemotingCommand, runner: HandlerRunner[Any], message: MessageExt
    ) -> None:
        started = time.monotonic()
        failure = await runner.handle_directly(message)
        spent_ms = int((time.monotonic() - started) * 1000)
        result, remark = bodies.CR_SUCCESS, None
        if isinstance(failure, RetryLater):
            result, remark = bodies.CR_LATER, str(failure)
        elif failure is not None:
            result, remark = bodies.CR_THROW_EXCEPTION, f"{type(failure).__name__}: {failure}"
        body = bodies.encode_direct_result(result, ordered=runner.rules.ordered, remark=remark, spent_ms=spent_ms)
        self.client.answer(address, RemotingCommand.response_to(request, 0, body=body))

    async def _reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            reader = self.readers.get(queue)
            if queue.topic == topic and reader is not None:
                log.warning("group %s: %s goes on at offset %d: an operator has reset it", self.group, queue, offset)
                await reader.seek(offset)
                try:
                    await reader.commit()
                except RingmqError as error:
                    log.warning("group %s: offset of %s could not be committed: %s", self.group, queue, error)

    def _not_here(self, request: RemotingCommand, group: str) -> RemotingCommand:
        remark = f"The Consumer Group <{group}> not exist in this consumer"
        return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark)


def running_info(
    readers: Iterable[QueueReader],
    subscriptions: Iterable[SubscriptionData],
    stats: ConsumeStats,
    now: float,
    *,
    properties: Mapping[str, str],
    locks: LockRenewer | None,
    stacks: bool,
) -> ConsumerRunningInfo:
    """Return the answer to 307. `properties` are values that only the consumer knows."""
    known = list(subscriptions)
    return ConsumerRunningInfo(
        properties={bodies.PROP_CLIENT_VERSION: version_name(VERSION_V5_3_3), **properties},
        subscriptions=known,
        queues={reader.queue: _queue_info(reader, locks) for reader in readers},
        statuses={subscription.topic: stats.status(subscription.topic, now) for subscription in known},
        stacks=thread_stacks() if stacks else None,
    )


def _queue_info(reader: QueueReader, locks: LockRenewer | None) -> ProcessQueueInfo:
    held = reader.process_queue.messages
    return ProcessQueueInfo(
        commit_offset=0 if reader.window is None else reader.window.committable_offset,
        cached_min_offset=held[0].queue_offset if held else 0,
        cached_max_offset=held[-1].queue_offset if held else 0,
        cached_count=len(held),
        cached_mib=reader.process_queue.bytes_held >> 20,
        locked=locks is not None and locks.held(reader.queue),
        last_pull_timestamp_ms=reader.last_pull_ms,
        last_consume_timestamp_ms=reader.process_queue.taken_ms,
    )


def offsets_of(readers: Iterable[QueueReader], topic: str) -> dict[MessageQueue, int]:
    """Return the next offsets of the queues of `topic`, without queues whose start is unknown."""
    return {
        reader.queue: reader.window.committable_offset
        for reader in readers
        if reader.queue.topic == topic and reader.window is not None
    }


def thread_stacks() -> str:
    """Return the stacks of all threads and of all tasks of the running loop, like jstack for a JVM."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    ]
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        tasks = set()
    for task in tasks:
        frames = task.get_stack(limit=1)
        where = "".join(traceback.format_stack(frames[0], limit=1)) if frames else ""
        parts.append(f"task {task.get_name()}\n{where}")
    return "\n".join(parts)[:STACKS_CHARS_MAX]
