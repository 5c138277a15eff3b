"""Code of the application, or of tracing and metrics, around every send and every message that is handed out.

Interceptors run where the client runs: they must be quick and must not wait. What `before_...` raises reaches the
caller; what the others raise is logged, since the message's fate is decided by then.
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
    """What a broker was told about a transaction; `state` is the name of a `TransactionState`, `from_check` whether the
    broker had asked."""

    message_id: str
    transaction_id: str
    state: str
    address: str
    from_check: bool


class Interceptor:
    """Override what you need. What a `before_...` returns is given to its `after_...` as `scope`."""

    def before_send(self, group: str, messages: Sequence[Message]) -> object:
        """The messages of one request, before their UNIQ_KEYs are made: properties may be added."""
        return None

    def on_answer(self, scope: object, address: str, answer: RemotingCommand) -> None:
        """The broker at `address` has answered one attempt, by whatever code."""

    def after_send(
        self, scope: object, messages: Sequence[Message], result: SendResult | None, error: BaseException | None
    ) -> None:
        """The send has ended, after all its attempts: with a result, an error, or neither (one-way)."""

    def after_transaction(self, group: str, message: Message, end: TransactionEnd) -> None:
        """A broker was told how the transaction of `message` ended."""

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        """The messages go to the application."""

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        """The messages were acknowledged; with `error` the application failed on them and they will come again."""


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
        """Tell of one attempt's answer."""
        for interceptor, scope in self._entered:
            run_quietly(interceptor.on_answer, scope, address, answer)

    def end(self, result: SendResult | None, error: BaseException | None = None) -> None:
        """Tell those that were told of the beginning. Has no effect the second time."""
        entered, self._entered = self._entered, []
        for interceptor, scope in reversed(entered):
            run_quietly(interceptor.after_send, scope, self._messages, result, error)


def run_quietly(after: Callable[..., None], *args: object) -> None:
    """Call what must not do harm any more; log what it raises."""
    try:
        after(*args)
    except Exception:
        log.exception("%s failed", getattr(after, "__qualname__", after))
