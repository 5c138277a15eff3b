"""The decisions of one queue's reader, without IO: next request, meaning of an answer, step after a failure.

The shell (`queue_reader`) sends the requests and waits.
"""

import logging
from dataclasses import dataclass, field
from enum import Enum

from ringmq.client.arguments import INT_MAX, LONG_MAX, check_flags, check_numbers
from ringmq.client.consuming.ack_window import AckWindow
from ringmq.client.consuming.pull_decoding import read_answer
from ringmq.client.errors import BrokerError, RequestTimeoutError, RingmqError
from ringmq.client.retry import backoff_ms
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import PullSysFlag
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.route import MASTER_ID
from ringmq.remoting.subscription import SubscriptionData

log = logging.getLogger("ringmq.client")

FLOW_CONTROL_PAUSE_S = 0.02  # as RocketMQ's client waits after 215
EMPTY_ANSWER_PAUSE_S = 0.05  # a server that answers "nothing" at once instead of holding is not asked in a tight loop
HELD_AT_LEAST_S = 0.005
MISSING_MEMBER_PAUSE_S = 0.5  # before the name server is asked for a member that a broker names
RESET = "OFFSET_RESET"  # in an answer 21: an operator has reset the offset
UNKNOWN_SUBSCRIPTION_CODES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Bounds of pulls. Times in ms.

    Per queue, `buffered_max` messages and `buffered_bytes_max` wait for the application, and `unacked_max` messages
    are not acknowledged, waiting or delivered. Over all queues, `inbox_max` messages and `inbox_bytes_max` wait. A
    pull in progress when a bound is reached may exceed it by its own messages. Compressed bodies wait as they are
    stored. A poll decompresses up to `buffered_bytes_max`, which its last message may exceed; each handler has one
    message. With `check_crc` a stored body whose CRC is wrong is an error: see `BodyCrcError`.
    """

    batch_count: int = 32
    suspend_ms: int = 15_000
    timeout_ms: int = 30_000
    buffered_max: int = 1000
    buffered_bytes_max: int = 16 << 20
    unacked_max: int = 100_000
    inbox_max: int = 100_000
    inbox_bytes_max: int = 256 << 20
    check_crc: bool = False

    def __post_init__(self) -> None:
        check_numbers(1, INT_MAX, batch_count=self.batch_count, suspend_ms=self.suspend_ms, timeout_ms=self.timeout_ms)
        bounds = ("buffered_max", "buffered_bytes_max", "unacked_max", "inbox_max", "inbox_bytes_max")
        check_numbers(1, LONG_MAX, **{name: getattr(self, name) for name in bounds})
        check_flags(check_crc=self.check_crc)


class Recovery(Enum):
    """The shell's step before the next pull."""

    NONE = 0
    HEARTBEAT = 1  # the broker does not know our subscription
    ROUTE = 2  # the broker may be elsewhere now


@dataclass(slots=True)
class Outcome:
    """Result of a pull: messages for the inbox, and the wait before the next step.

    It also says whether the buffered messages are void.
    """

    messages: list[MessageExt] = field(default_factory=list)
    moved: bool = False
    pause_s: float = 0.0
    recovery: Recovery = Recovery.NONE


class PullCore:
    """One queue's position. With `own_subscription` each pull carries the expression, for readers without heartbeats.

    Messages lose their `namespace`.
    """

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        subscription: SubscriptionData,
        options: PullOptions,
        *,
        own_subscription: bool = False,
        namespace: str = "",
    ) -> None:
        self.queue = queue
        self._namespace = namespace
        self.subscription = subscription
        self.window: AckWindow | None = None  # None until the start offset is known
        self.next_offset = -1
        self.suggested_broker_id = MASTER_ID
        self._asked_broker_id = MASTER_ID
        self._options = options
        self._failures = 0
        self._unacked_warned = False
        flags = PullSysFlag.SUSPEND | (PullSysFlag.SUBSCRIPTION if own_subscription else PullSysFlag(0))
        self._fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "maxMsgNums": str(options.batch_count),
            "sysFlag": str(int(flags)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(options.suspend_ms),
            "subscription": subscription.sub_string,
            "subVersion": str(subscription.sub_version),
            "expressionType": subscription.expression_type,
        }

    def begin(self, offset: int, committed_offset: int | None) -> None:
        """Set the start offset."""
        self.next_offset = offset
        self.window = AckWindow(offset, committed_offset)

    def forget(self) -> None:
        """Forget the start offset, which must be found again."""
        self.window = None

    def set_position(self, offset: int) -> None:
        """Continue at `offset`."""
        self.next_offset = offset
        if self.window is None:
            self.window = AckWindow(offset)
        else:
            self.window.seek(offset)

    def has_room(self, buffered: int, buffered_bytes: int) -> bool:
        """True if the queue's part of the inbox allows a pull. All of it may be delivered before the next check."""
        options = self._options
        assert self.window is not None
        if self.window.open_count >= options.unacked_max:
            if self.window.open_count - buffered >= options.unacked_max and not self._unacked_warned:
                self._unacked_warned = True
                log.warning("%s: %d messages are not acknowledged; no more are read", self.queue, options.unacked_max)
            return False
        return buffered < options.buffered_max and buffered_bytes < options.buffered_bytes_max

    def request(self) -> RemotingCommand:
        """Return the next pull, for the suggested member of the broker group."""
        self._asked_broker_id = self.suggested_broker_id
        return RemotingCommand.request(RequestCode.PULL_MESSAGE, {**self._fields, "queueOffset": str(self.next_offset)})

    def take(self, address: str, answer: RemotingCommand, offset: int, *, held_s: float) -> Outcome:
        """Handle the answer of `address` to the pull at `offset`, `held_s` after the request. Raises `BrokerError`."""
        assert self.window is not None
        held = held_s >= HELD_AT_LEAST_S
        suggested = (answer.ext_fields or {}).get("suggestWhichBrokerId", "")
        if suggested.isdecimal():  # every answer to a pull says which member of the broker's group to ask next
            self.suggested_broker_id = int(suggested)
        code = answer.code
        if code == ResponseCode.FLOW_CONTROL:
            self._failures = 0
            return Outcome(pause_s=FLOW_CONTROL_PAUSE_S)
        if code == ResponseCode.SUCCESS:
            next_offset = self._header_offset(address, answer)
            messages, readable_to = read_answer(
                answer.body, self.queue, offset, self.subscription, self._namespace,
                check_crc=self._options.check_crc, split_bytes_max=self._options.buffered_bytes_max,
            )  # fmt: skip
            if readable_to is not None:
                next_offset = min(next_offset, readable_to)
            self.window.deliver([message.queue_offset for message in messages], next_offset)
            self.next_offset = next_offset
            outcome = Outcome(messages)
        elif code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            next_offset = self._header_offset(address, answer)
            outcome = Outcome()
            if next_offset > offset:
                self.window.deliver((), next_offset)
                self.next_offset = next_offset
            elif not held:
                outcome.pause_s = EMPTY_ANSWER_PAUSE_S
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            next_offset = self._header_offset(address, answer)
            outcome = self._reset(next_offset) if answer.remark == RESET else self._move(offset, next_offset)
            if next_offset == offset and not held:
                outcome.pause_s = EMPTY_ANSWER_PAUSE_S
        else:
            raise BrokerError(address, code, answer.remark)
        self._failures = 0
        return outcome

    def failed(self, error: RingmqError, jitter: float) -> Outcome:
        """Return the outcome of a failed pull: register with the broker, or refresh the route, then wait a little.

        If the topic is gone, the messages read so far are void, and a new topic of its name begins again. A slave may
        merely not know the topic yet.
        """
        gone = (
            isinstance(error, BrokerError)
            and error.code == ResponseCode.TOPIC_NOT_EXIST
            and self._asked_broker_id == MASTER_ID
        )
        self.suggested_broker_id = MASTER_ID
        self._failures += 1
        pause_s = backoff_ms(self._failures, jitter) / 1000
        if isinstance(error, BrokerError) and error.code in UNKNOWN_SUBSCRIPTION_CODES:
            log.info("%s: %s; sending a heartbeat", self.queue, error)
            return Outcome(pause_s=pause_s, recovery=Recovery.HEARTBEAT)
        if isinstance(error, RequestTimeoutError):
            return Outcome(pause_s=pause_s)
        log.warning("%s: %s", self.queue, error)
        return Outcome(moved=gone, pause_s=pause_s, recovery=Recovery.ROUTE)

    def _reset(self, next_offset: int) -> Outcome:
        """Apply an operator's reset: open messages become void, as in stock's clients."""
        self.set_position(next_offset)
        log.warning("%s: reset, going on at %d", self.queue, next_offset)
        return Outcome(moved=True)

    def _move(self, offset: int, next_offset: int) -> Outcome:
        """Move to another offset after a gap or a step back.

        A move forward passes messages that the broker has deleted unread, and earlier messages are still delivered. A
        move back means another log: a topic was made again, or a broker has lost its end. The open messages may be
        part of the old log.
        """
        assert self.window is not None
        if next_offset >= offset:
            self.window.deliver((), next_offset)
            self.next_offset = next_offset
        else:
            self.set_position(min(next_offset, self.window.committable_offset))
        log.warning("%s: offset %d does not exist, going on at %d", self.queue, offset, self.next_offset)
        return Outcome(moved=next_offset < offset)

    def _header_offset(self, address: str, answer: RemotingCommand) -> int:
        try:
            return int(answer.ext_fields["nextBeginOffset"])
        except (KeyError, ValueError):
            raise BrokerError(address, answer.code, "pull answer without nextBeginOffset") from None
