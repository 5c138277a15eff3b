"""Errors of the SDK. Each text names the next step of the caller.

All deliberate errors derive from `RingmqError`. Faults of the caller (an empty topic, a body over the limit) are
plain `ValueError`s, raised at once, before anything is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringmq.client.popping.popped_message import PoppedMessage
    from ringmq.client.producing.send_result import SendResult
    from ringmq.remoting.message import MessageExt


# Words of stock's authentication and authorisation -> the setting of the client that they are about.
_ADVICE = (
    ("signature failed", "the secret key is not that of the access key: see credentials= of the settings"),
    ("username cannot be null", "the broker serves signed requests only: give credentials= to the settings"),
    ("User:", "the access key of the settings' credentials names no user of the broker, or a disabled one"),
    ("has no permission", "the user needs a policy for it (mqadmin createAcl on the broker's side)"),
)


class RingmqError(Exception):
    """Base of all errors of requests to a broker or name server."""


class ClientClosedError(RingmqError):
    """The client was closed (or never started); nothing was sent."""


class ConnectError(RingmqError):
    """No connection to `address`.

    With `sent` the request left before the connection broke, and may have been served.
    """

    def __init__(self, address: str, reason: str, *, sent: bool = False) -> None:
        super().__init__(
            f"connection to {address} broke: {reason}" if sent else f"no connection to {address}: {reason}"
        )
        self.address = address
        self.reason = reason
        self.sent = sent


class NameServerConnectError(ConnectError):
    """No connection to the name server at `address`."""

    def __init__(self, address: str, reason: str, *, sent: bool = False) -> None:
        super().__init__(f"name server {address}", reason, sent=sent)
        self.address = address


class TlsError(ConnectError):
    """`address` did not prove its identity. Nothing was sent, and a retry would prove no more."""


class RequestTimeoutError(RingmqError):
    """`address` did not answer in time. The request may still have been served."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(f"{address} did not answer within {timeout_ms} ms")
        self.address = address
        self.timeout_ms = timeout_ms


class NameServerTimeoutError(RequestTimeoutError):
    """The name server at `address` did not answer in time."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(f"name server {address}", timeout_ms)
        self.address = address


class ReplyTimeoutError(RingmqError):
    """A request was stored, but no consumer of `topic` has replied in time."""

    def __init__(self, topic: str, timeout_ms: int) -> None:
        super().__init__(f"no consumer of topic {topic} replied within {timeout_ms} ms")
        self.topic = topic
        self.timeout_ms = timeout_ms


class BrokerError(RingmqError):
    """A server answered with an error code."""

    def __init__(self, address: str, code: int, remark: str | None) -> None:
        advice = _advice(remark) if remark and code == ResponseCode.NO_PERMISSION else ""
        super().__init__(f"{address} answered {code}: {remark or 'no remark'}{advice}")
        self.address = address
        self.code = code
        self.remark = remark

    @property
    def is_rejection(self) -> bool:
        """True if the broker accepts no send of any client. So answers a slave, which may have been the master."""
        return self.code == ResponseCode.SYSTEM_BUSY and (self.remark or "").startswith("[REJECTREQUEST]")


class NotANameServerError(BrokerError):
    """The server at `address` knows no request of a name server: it is a broker, for example."""

    def __init__(self, address: str, code: int, remark: str | None) -> None:
        super().__init__(address, code, remark)
        self.args = (
            f"{address} is no name server: it answered {code} ({(remark or 'no remark').strip()}), as a broker does; "
            "give the address of a name server (by default port 9876)",
        )


class NotStoreOkError(RingmqError):
    """A message is stored, but a wait for disk or replicas failed. Used inside the producer: callers get `result`."""

    def __init__(self, result: SendResult) -> None:
        super().__init__(f"stored with status {result.status.name}")
        self.result = result


class RouteError(RingmqError):
    """No broker serves the topic as requested. Create the topic, or give the broker time to register.

    With `may_pass` none of the topic's brokers is registered now, or no broker at all, as while one starts.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class SendError(RingmqError):
    """A message was not stored, as far as known. `code` is the broker's last answer, None without an answer.

    With `code is None` (time-outs, lost connections) a copy may have been stored: another send can make a duplicate
    with the same UNIQ_KEY.
    """

    def __init__(self, topic: str, attempts: int, cause: RingmqError) -> None:
        self.code: int | None = cause.code if isinstance(cause, BrokerError) else None
        self.remark: str | None = cause.remark if isinstance(cause, BrokerError) else None
        tried = f"sending to topic {topic} failed after {attempts} attempt{'s' if attempts > 1 else ''}"
        super().__init__(f"{tried if attempts else f'nothing was sent to topic {topic}'}: {cause}")
        self.topic = topic
        self.attempts = attempts
        self.cause = cause


class BodyCrcError(RingmqError):
    """The stored body of `message` does not have the CRC of its record. Raised with `PullOptions(check_crc=True)`.

    The message counts as delivered: a consumer passes it by `ack(error.message)`, or with `auto_ack` by the next poll.
    """

    def __init__(self, message: MessageExt) -> None:
        place = f"{message.read_topic or message.topic}, broker {message.broker_name}, queue {message.queue_id}"
        super().__init__(
            f"message {message.msg_id} of topic {place}, offset {message.queue_offset} (log offset "
            f"{message.commit_log_offset}) has a damaged body: its CRC is not the stored {message.body_crc:#010x}; "
            "read it from a replica, or acknowledge it to go on without it"
        )
        self.message = message


class ReceiptExpiredError(RingmqError):
    """The invisible time of popped `messages` is over, or their broker does not know their receipts any more.

    They come again, or another consumer of the group has them: what was done for them may be done twice. A longer
    invisible time, or `change_invisible` in time, avoids it. `cause` is the broker's answer, None if the time is over.
    """

    def __init__(self, messages: Sequence[PoppedMessage], cause: RingmqError | None = None) -> None:
        first, more = messages[0], f" and of {len(messages) - 1} more" if len(messages) > 1 else ""
        why = f"their broker does not take them: {cause}" if cause else "the invisible time is over"
        super().__init__(
            f"receipts of message {first.msg_id} of topic {first.topic} (broker {first.broker_name}, queue "
            f"{first.queue_id}, offset {first.queue_offset}){more} are void: {why}. They may come again; take more "
            "time by invisible_ms, or by change_invisible before it is over"
        )
        self.messages = list(messages)
        self.cause = cause


def of_name_server(error: RingmqError) -> RingmqError:
    """Return the failure of a request to a name server with a text that says so."""
    if type(error) is ConnectError:
        return NameServerConnectError(error.address, error.reason, sent=error.sent)
    if type(error) is RequestTimeoutError:
        return NameServerTimeoutError(error.address, error.timeout_ms)
    if type(error) is BrokerError and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return NotANameServerError(error.address, error.code, error.remark)
    return error


def _advice(remark: str) -> str:
    return next((f" ({advice})" for words, advice in reversed(_ADVICE) if words in remark), "")
