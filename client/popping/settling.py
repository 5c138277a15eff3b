"""Ends and renewals of popped messages: acknowledgements, changes of the invisible time, dead letters."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.consume_retry import DEAD_LETTER_LEVEL, ConsumeRetry, send_back_fields
from ringmq.client.consuming.send_backs import SEND_BACK_TIMEOUT_MS
from ringmq.client.errors import (
    BrokerError,
    ConnectError,
    ReceiptExpiredError,
    RequestTimeoutError,
    RingmqError,
    RouteError,
    TlsError,
)
from ringmq.client.popping.pop_requests import WireGroup
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.retry import backoff_ms, never_left
from ringmq.client.runtimes.runtime import Task, create_task, gather, sleep, wait
from ringmq.client.runtimes.waiting import Signal, finish
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.response_headers import ChangeInvisibleTimeResponseHeader

log = logging.getLogger("ringmq.client")

TRIES_MS = 3000
"""Requests are repeated for so long after lost connections."""
VOID_CODES = frozenset({ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL})

NOTES_MAX = 8


def joined(errors: Sequence[BaseException]) -> BaseException:
    """Return the error of several requests. The texts of other ones are its notes, up to `NOTES_MAX`.

    Void receipts are one error, which names all their messages. Errors that another call may mend come first.
    """
    others = [error for error in errors if not isinstance(error, ReceiptExpiredError)]
    void = [error for error in errors if isinstance(error, ReceiptExpiredError)]
    if len(void) > 1:
        void = [ReceiptExpiredError([message for error in void for message in error.messages], void[0].cause)]
    first, *rest = others + void
    texts = {text: None for error in rest for text in (str(error), *getattr(error, "__notes__", ()))}
    for text in list(texts)[:NOTES_MAX]:
        first.add_note(text)
    if len(texts) > NOTES_MAX:
        first.add_note(f"and {len(texts) - NOTES_MAX} errors more")
    return first


class _Answer(NamedTuple):
    """The answer of a broker. It was asked at the monotonic time `asked_at`."""

    command: RemotingCommand
    address: str
    asked_at: float

    def check(self, messages: Sequence[PoppedMessage]) -> None:
        """Raise unless the broker has done what it was asked for `messages`."""
        if self.command.code == ResponseCode.SUCCESS:
            return
        refused = self.refusal(self.command.remark)
        if self.command.code in VOID_CODES:
            raise ReceiptExpiredError(messages, refused)
        raise refused

    def refusal(self, text: str | None) -> BrokerError:
        """Return the error of this answer."""
        return BrokerError(self.address, self.command.code, text)


class Settling:
    """Sends what becomes of popped messages to the brokers that gave them. Raises `RingmqError`.

    Requests go out again after lost connections, for `TRIES_MS`, if a repetition does no harm.
    """

    def __init__(self, client: RemotingClient, routes: RouteTable, group: str, timeout_ms: int) -> None:
        self._client = client
        self._routes = routes
        self._group = group
        self._wire = WireGroup(group, client.settings.namespace)
        self._timeout_ms = timeout_ms
        self._without_batches: set[str] = set()  # addresses
        self._under_way = 0
        self._idle = Signal()
        self._tasks: set[Task[None]] = set()

    async def ack(self, messages: Sequence[PoppedMessage]) -> None:
        """Acknowledge messages, by one request for each broker. Raises after all were tried (`joined`).

        Messages whose time is over are acknowledged like others: that counts unless they have come again. After that
        `ReceiptExpiredError` names them.
        """
        now = time.monotonic()
        late = [message for message in messages if message.expires_at < now]
        if len(messages) == 1:
            await self._counted(self._ack_one(messages[0]))
        else:
            by_broker: dict[str, list[PoppedMessage]] = {}
            for message in messages:
                by_broker.setdefault(message.receipt.broker_name, []).append(message)
            await self._counted(self._all(*(self._ack_together(found) for found in by_broker.values())))
        if late:
            raise ReceiptExpiredError(late)

    async def change_invisible(self, message: PoppedMessage, invisible_ms: int) -> None:
        """Have the message come again `invisible_ms` from now on. It has a new receipt then.

        A cancelled call ends with the answer: the broker does not know the old receipt any more. Raises
        `ReceiptExpiredError` if the message's time is over: another consumer may have it.
        """
        if message.seconds_left < 0:
            raise ReceiptExpiredError([message])
        await finish(self._counted(self._change(message, invisible_ms)))

    async def reject(self, message: PoppedMessage) -> None:
        """Store the message among the dead letters of the group, then acknowledge it."""
        await self._counted(self._reject(message))

    def begin_give_back(self, messages: Sequence[PoppedMessage]) -> None:
        """Let messages that the application will not see come again at once. Failures are logged."""
        if messages:
            self._begin(self._give_back(messages))

    def begin_ack(self, messages: Sequence[PoppedMessage]) -> None:
        """Acknowledge messages that the application does not want. Failures are logged."""
        if messages:
            self._begin(self._ack_quietly(messages))

    async def drain(self, timeout_s: float) -> int:
        """Wait for requests under way. Returns the number of those that have not ended."""
        deadline = time.monotonic() + timeout_s
        await wait(list(self._tasks), timeout_s)  # those that have not begun are not counted yet
        while self._under_way and (left_s := deadline - time.monotonic()) > 0:
            await self._idle.wait(left_s)
        return self._under_way

    # ---- inside ----

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = create_task(self._counted(work), name="ringmq settles")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _counted(self, work: Coroutine[Any, Any, None]) -> None:
        self._under_way += 1
        try:
            await work
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.wake()

    async def _all(self, *works: Coroutine[Any, Any, None]) -> None:
        outcomes = await gather(*works, return_exceptions=True)
        if errors := [outcome for outcome in outcomes if isinstance(outcome, BaseException)]:
            raise joined(errors)

    async def _ack_one(self, message: PoppedMessage) -> None:
        fields = self._wire.ack_fields(message)
        answer = await self._ask(message, RequestCode.ACK_MESSAGE, fields)
        answer.check([message])

    async def _ack_together(self, messages: list[PoppedMessage]) -> None:
        if len(messages) == 1 or self._address(messages[0]) in self._without_batches:
            await self._all(*map(self._ack_one, messages))
            return
        await self._all(*(self._ack_batch(body, found) for body, found in self._wire.batch_bodies(messages)))

    async def _ack_batch(self, body: bytes, messages: list[PoppedMessage]) -> None:
        if not body:
            await self._ack_one(messages[0])
            return
        answer = await self._ask(messages[0], RequestCode.BATCH_ACK_MESSAGE, {}, body)
        if answer.command.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._without_batches.add(answer.address)
            await self._all(*map(self._ack_one, messages))
            return
        answer.check(messages)

    async def _change(self, message: PoppedMessage, invisible_ms: int) -> None:
        receipt = message.receipt
        fields = self._wire.change_fields(message, invisible_ms)
        answer = await self._ask(message, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields, is_repeatable=False)
        answer.check([message])
        try:
            told = ChangeInvisibleTimeResponseHeader.decode(answer.command.ext_fields)
        except RemotingError as error:
            raise answer.refusal(f"answer to a change of the invisible time: {error}") from error
        if not told.pop_time:  # so answer brokers for a message that has left its ordered batch
            raise ReceiptExpiredError([message])
        changed = receipt._replace(
            start_offset=receipt.offset,
            pop_time_ms=told.pop_time,
            invisible_ms=told.invisible_time,
            revive_queue=told.revive_qid,
        )
        message.renew(changed, answer.asked_at + invisible_ms / 1000)

    async def _reject(self, message: PoppedMessage) -> None:
        fields = send_back_fields(message, self._group, DEAD_LETTER_LEVEL, ConsumeRetry(max_reconsume_times=0))
        answer = await self._ask(
            message, RequestCode.CONSUMER_SEND_MSG_BACK, fields, is_repeatable=False, timeout_ms=SEND_BACK_TIMEOUT_MS
        )
        if answer.command.code != ResponseCode.SUCCESS:
            raise answer.refusal(answer.command.remark)
        await self._ack_one(message)

    async def _give_back(self, messages: Sequence[PoppedMessage]) -> None:
        try:
            await self._all(*(self._change(message, 0) for message in messages))
        except RingmqError as error:
            log.info("group %s: %d messages come again at their time: %s", self._group, len(messages), error)
        except Exception:  # a hook's fault, or ours, in a task without a waiter
            log.exception("group %s: %d messages come again at their time", self._group, len(messages))

    async def _ack_quietly(self, messages: Sequence[PoppedMessage]) -> None:
        try:
            await self.ack(messages)
        except RingmqError as error:
            log.info("group %s: %d messages that no filter wants come again: %s", self._group, len(messages), error)
        except Exception:  # as in `_give_back`
            log.exception("group %s: %d messages that no filter wants come again", self._group, len(messages))

    def _address(self, message: PoppedMessage) -> str | None:
        route = self._routes.known(message.topic)
        return None if route is None else route.master_address(message.receipt.broker_name)

    async def _ask(
        self,
        message: PoppedMessage,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        is_repeatable: bool = True,
        timeout_ms: int | None = None,
    ) -> _Answer:
        """Return the answer of the message's broker."""
        deadline, failures = time.monotonic() + TRIES_MS / 1000, 0
        while True:
            try:
                address = self._address(message)
                if address is None:
                    raise RouteError(
                        f"no master of broker {message.receipt.broker_name} is registered, which has given a message "
                        f"of topic {message.topic}; it comes again after its invisible time",
                        may_pass=True,
                    )
                request, asked_at = RemotingCommand.request(code, fields, body), time.monotonic()
                command = await self._client.invoke(address, request, timeout_ms or self._timeout_ms)
                return _Answer(command, address, asked_at)
            except (ConnectError, RequestTimeoutError, RouteError) as error:
                failures += 1
                pause_s = backoff_ms(failures, random.random()) / 1000
                may_repeat = is_repeatable or never_left(error)
                if isinstance(error, TlsError) or not may_repeat or time.monotonic() + pause_s >= deadline:
                    raise
            await sleep(pause_s)
            if failures > 1:
                await self._fetch_route(message.topic)

    async def _fetch_route(self, topic: str) -> None:
        try:
            await self._routes.fetch(topic)
        except RingmqError as error:
            log.debug("route of topic %s: %s", topic, error)
