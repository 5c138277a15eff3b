"""Transactions of the 5.x client: begun, used by one `send`, ended by `commit` or `rollback` whenever that is.

The SDK runs a local transaction inside its send; here that local transaction waits, in a thread, for the decision.
"""

import abc
import threading
from collections.abc import Callable
from enum import IntEnum

from ringmq.client.producing.transactions import TransactionResult, TransactionState
from ringmq.client.rocketmq5.client import client_exception
from ringmq.client.rocketmq5.exception import IllegalArgumentException, InternalErrorException
from ringmq.client.rocketmq5.model import Message
from ringmq.remoting import message as wire
from ringmq.remoting import properties as names


class TransactionResolution(IntEnum):
    """What becomes of a half message."""

    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


STATES = {
    TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED: TransactionState.UNKNOWN,
    TransactionResolution.COMMIT: TransactionState.COMMIT,
    TransactionResolution.ROLLBACK: TransactionState.ROLLBACK,
}


class TransactionChecker(metaclass=abc.ABCMeta):
    """The application's records of its transactions."""

    @abc.abstractmethod
    def check(self, message: Message) -> TransactionResolution:
        """How the transaction of this half message ended."""


class Transaction:
    """Made by `Producer.begin_transaction`; for one message."""

    def __init__(self) -> None:
        self._stored = threading.Event()
        self._decided = threading.Event()
        self._state = TransactionState.UNKNOWN
        self._thread: threading.Thread | None = None
        self._message_id = ""
        self._result: TransactionResult | None = None
        self._error: Exception | None = None

    @property
    def message_id(self) -> str:
        """Of the half message; empty before it was sent."""
        return self._message_id

    @property
    def has_ended(self) -> bool:
        """The broker was told, or will ask."""
        return self._decided.is_set()

    def commit(self) -> None:
        """Publish the message. Raises `ClientException` when the broker did not take it; it will ask the checker."""
        self._end(TransactionState.COMMIT)

    def rollback(self) -> None:
        """Drop the message. Raises as `commit`."""
        self._end(TransactionState.ROLLBACK)

    def run(self, send: Callable[[Callable[[wire.Message], TransactionState]], TransactionResult]) -> str:
        """Let `send` store the half; its id, as soon as it is stored. Raises what `send` raises."""
        if self._thread is not None:
            raise IllegalArgumentException("message already existed in transaction")

        def local(half: wire.Message) -> TransactionState:
            self._message_id = half.properties[names.UNIQ_KEY]
            self._stored.set()
            self._decided.wait()
            return self._state

        def work() -> None:
            try:
                self._result = send(local)
            except Exception as error:
                self._error = error
            finally:
                self._stored.set()

        self._thread = threading.Thread(target=work, name="transaction", daemon=True)
        self._thread.start()
        self._stored.wait()
        if self._error is not None:
            raise client_exception(self._error) from self._error
        if self._result is not None and not self._message_id:  # dropped: it was stored without the safety asked for
            raise InternalErrorException(f"the half message was stored with status {self._result.sent.status.name}")
        return self._message_id

    def leave_open(self) -> None:
        """The producer ends: the broker will ask."""
        if not self._decided.is_set():
            self._decided.set()
            self._join()

    def _end(self, state: TransactionState) -> None:
        if self._thread is None or not self._message_id:
            raise IllegalArgumentException("no transaction_id in transaction, must send half message at first.")
        if self._decided.is_set():
            raise IllegalArgumentException("the transaction has ended")
        self._state = state
        self._decided.set()
        self._join()
        if self._result is None or not self._result.confirmed:
            raise InternalErrorException(f"{state.name} of message {self._message_id} was not confirmed by the broker")

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join()
