"""Transactional messages: invisible halves that the outcome of a local transaction publishes or drops.

`TransactionProducer.send_in_transaction` stores the half, runs the local transaction and sends its outcome to the
broker. If the outcome does not arrive, the broker asks any producer of the group later (39). `check` answers from the
application's own records.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ringmq.client.compression import DecompressionError, decompress_body
from ringmq.client.errors import RingmqError
from ringmq.client.interceptors import TransactionEnd, run_quietly
from ringmq.client.namespaces import without_namespace
from ringmq.client.producer import Producer
from ringmq.client.producing.send_result import SendResult, SendStatus
from ringmq.client.runtimes.runtime import call_outside, wait
from ringmq.client.runtimes.waiting import PushedTasks
from ringmq.remoting import properties as names
from ringmq.remoting.client_headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.flags import MessageSysFlag, without_compression
from ringmq.remoting.message import Message, MessageExt, decode_message
from ringmq.remoting.message_id import decode_offset_id

log = logging.getLogger("ringmq.client")

END_TIMEOUT_MS = 3000
CHECKS_WAIT_S = 3.0


class TransactionState(Enum):
    """The outcome of a local transaction. UNKNOWN: the broker asks later."""

    COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(MessageSysFlag.TRANSACTION_ROLLBACK)
    UNKNOWN = 0


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """`sent` is the position of the half. `confirmed` is True if the broker has accepted `state`.

    Otherwise the broker will ask. `error` is the error of the local transaction, whose state is UNKNOWN then.
    """

    sent: SendResult
    state: TransactionState
    confirmed: bool
    error: Exception | None = None


Local = Callable[[Message], TransactionState | Awaitable[TransactionState]]
Check = Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]


class TransactionProducer(Producer):
    """A `Producer` whose group answers brokers about the outcome of its transactions.

    `check` gets a half message and returns the state. It is a function, called in a thread, or an async function if
    the client is an asyncio one. All other arguments are those of `Producer`.
    """

    def __init__(self, *args: Any, check: Check, **options: Any) -> None:
        super().__init__(*args, **options)
        if not callable(check):
            raise TypeError(f"check must be a function that returns a TransactionState, not {check!r}")
        self._check = check
        self._checks = PushedTasks()  # the broker asks again after a check without answer

    async def send_in_transaction(self, message: Message, local: Local) -> TransactionResult:
        """Store `message` as a half, run `local` with it, then publish or drop it.

        Raises `SendError` if the half could not be stored, and then `local` has not run. A half that was stored
        without the requested safety is dropped, and `local` does not run.
        """
        properties = message.properties
        for name in (names.DELAY, *names.TIMER_PROPERTIES):
            if name in properties:
                raise ValueError(f"a transactional message cannot be delayed: property {name}")
        properties[names.TRAN_MSG] = "true"
        properties[names.PGROUP] = self._wire_group  # by it the broker finds whom to ask
        try:
            sent = await self.send(message)
        finally:
            properties.pop(names.TRAN_MSG, None)  # a later send of this message stores no half
        state, error = TransactionState.ROLLBACK, None
        if sent.status is SendStatus.OK:
            try:
                state = _state(await call_outside(local, message))
            except Exception as raised:
                log.warning("local transaction of message %s failed: %s", sent.message_id, raised)
                state, error = TransactionState.UNKNOWN, raised
        return TransactionResult(sent, state, await self._end_own(message, sent, state), error)

    async def close(self) -> None:
        """Wait for checks in progress, at most 3 s (the broker asks the next member of the group), then close."""
        checks = self._checks.running()
        try:
            await wait(checks, CHECKS_WAIT_S)
        except CancelledError:  # close waits no longer
            self._started = False
            await self._leave()
            raise
        finally:
            for check in checks:
                check.cancel()
        await super().close()

    async def _end_own(self, message: Message, sent: SendResult, state: TransactionState) -> bool:
        """Send the outcome to the broker. True if the broker has accepted it, otherwise the broker asks later."""
        route = self._routes.known(message.topic)
        master = None if route is None else route.master_address(sent.queue.broker_name)
        if master is None or state is TransactionState.UNKNOWN:
            return False
        header = EndTransactionRequestHeader(
            topic=message.topic,
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=decode_offset_id(sent.offset_message_ids[0])[2],
            commit_or_rollback=state.value,
            from_transaction_check=False,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id or sent.message_id,
        )
        try:
            await self._client.call(master, RequestCode.END_TRANSACTION, header.encode(), timeout_ms=END_TIMEOUT_MS)
        except RingmqError as error:  # not said again: brokers publish a half as often as they are told to
            log.warning("%s of message %s was not confirmed: %s", state.name, sent.message_id, error)
            return False
        self._tell_interceptors(message, header, state, master)
        return True

    def _tell_interceptors(
        self, message: Message, header: EndTransactionRequestHeader, state: TransactionState, address: str
    ) -> None:
        for interceptor in self._interceptors:
            end = TransactionEnd(
                header.msg_id or "",
                header.transaction_id or "",
                state.name,
                address,
                bool(header.from_transaction_check),
            )
            run_quietly(interceptor.after_transaction, self.group, message, end)

    def _on_server_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CHECK_TRANSACTION_STATE:
            return super()._on_server_request(address, request)
        try:
            header = CheckTransactionStateRequestHeader.decode(request.ext_fields)
            message, _ = decode_message(request.body)
            if message.properties.get(names.PGROUP) != self._wire_group:
                log.warning("%s asks for a transaction of group %s", address, message.properties.get(names.PGROUP))
                return None
            if self._checks.full:
                log.warning("transactions of %s are being checked; %s will ask again", self._checks.fill, address)
                return None
            message.body = decompress_body(message.body, message.sys_flag)  # the half as it is stored
            if message.sys_flag & MessageSysFlag.COMPRESSED:
                message.sys_flag = without_compression(message.sys_flag)
        except (RemotingError, DecompressionError, RuntimeError) as error:  # the last: a package is not there
            log.warning("%s asks for a transaction, but the request cannot be decoded: %s", address, error)
            return None
        self._checks.start(self._answer_check(address, header, message), len(message.body), "ringmq transaction check")
        return None

    async def _answer_check(self, address: str, check: CheckTransactionStateRequestHeader, message: MessageExt) -> None:
        """Call the application's check and send its answer to the broker."""
        topic = message.properties.get(names.REAL_TOPIC, message.topic)
        message.topic = without_namespace(self._settings.namespace, topic)
        unique = message.properties.get(names.UNIQ_KEY) or message.msg_id
        try:
            state = _state(await call_outside(self._check, message))
        except Exception as error:
            log.warning("check of transactional message %s failed; the broker asks again: %s", unique, error)
            return
        header = EndTransactionRequestHeader(
            topic=message.topic,
            producer_group=self.group,
            tran_state_table_offset=check.tran_state_table_offset,
            commit_log_offset=check.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=unique,
            transaction_id=check.transaction_id or unique,
        )
        try:
            await self._client.send_oneway(
                address, RemotingCommand.request(RequestCode.END_TRANSACTION, header.encode(), oneway=True)
            )
        except RingmqError as error:
            log.warning("%s of message %s was not sent: %s", state.name, unique, error)
        else:
            self._tell_interceptors(message, header, state, address)


def _state(told: object) -> TransactionState:
    if not isinstance(told, TransactionState):
        raise TypeError(f"a transaction ends in a TransactionState, not in {told!r}")
    return told
