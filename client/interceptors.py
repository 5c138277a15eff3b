"""Code of the application, of tracing or of metrics around every send and every delivered message.

Interceptors run in the client's own thread or loop: they must be quick and must not wait. Errors of `before_...`
reach the caller. Errors of other methods are logged, since the outcome of the message is decided by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import Message, MessageExt

if TYPE_CHECKING:
    from ringmq.client.producing.send_result import SendResult

log = logging.getLogger("ringmq.client")


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The outcome of a transaction as sent to a broker. `state` is the name of a `TransactionState`.

    `from_check` is True if the broker had asked for it.
    """

    message_id: str
    transaction_id: str
    state: str
    address: str
    from_check: bool


class Interceptor:
    """Base of interceptors. The return value of a `before_...` is the `scope` of its `after_...`."""

    def before_send(self, group: str, messages: Sequence[Message]) -> object:
        """Called with the messages of one request, before their UNIQ_KEYs are made. Properties may be added."""
        return None

    def on_answer(self, scope: object, address: str, answer: RemotingCommand) -> None:
        """Called with the answer of the broker at `address` to one attempt, with any code."""

    def after_send(
        self, scope: object, messages: Sequence[Message], result: SendResult | None, error: BaseException | None
    ) -> None:
        """Called after all attempts of a send: with a result, an error, or neither (one-way)."""

    def after_transaction(self, group: str, message: Message, end: TransactionEnd) -> None:
        """Called after a broker was sent the outcome of the transaction of `message`."""

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        """Called before the messages go to the application."""

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        """Called after the messages were acknowledged.

        With `error` the application failed on them, and they come again.
        """


class SendScope:
    """One send, seen by all interceptors: `before` in their order, `after` in reverse."""

    __slots__ = ("_entered", "_messages")

    def __init__(self, interceptors: Sequence[Interceptor], group: str, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._entered: list[tuple[Interceptor, object]] = []
        try:
            for interceptor in interceptors:
                self._entered.append((interceptor, interceptor.before_send(group, messages)))
        except BaseException as error:
            self.end(None, error)
            raise

    def answered(self, address: str, answer: RemotingCommand) -> None:
        """Pass one attempt's answer to the interceptors."""
        for interceptor, scope in self._entered:
            run_quietly(interceptor.on_answer, scope, address, answer)

    def end(self, result: SendResult | None, error: BaseException | None = None) -> None:
        """Call `after` of the interceptors whose `before` was called. Has no effect the second time."""
        entered, self._entered = self._entered, []
        for interceptor, scope in reversed(entered):
            run_quietly(interceptor.after_send, scope, self._messages, result, error)


def run_quietly(after: Callable[..., None], *args: object) -> None:
    """Call an `after` method and log its errors: they must do no harm any more."""
    try:
        after(*args)
    except Exception:
        log.exception("%s failed", getattr(after, "__qualname__", after))
