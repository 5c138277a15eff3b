"""The decision about a message whose handler failed, without IO.

Rules of RocketMQ's push consumer (`ConsumeMessageConcurrentlyService.processConsumeResult`,
`ConsumeMessageOrderlyService.checkReconsumeTimes`):

* A concurrent consumer sends the message back to the broker (36). The broker delivers it again after a delay, or
  moves it to the group's dead letters after too many times. If the broker refuses it, the client tries again itself.
* An ordered consumer tries the same message again, and its queue waits.
* A broadcasting consumer drops the message.
* A consumer of assigned queues does not read the group's retry topic, so it tries again itself.
"""

from dataclasses import dataclass

from ringmq.client.arguments import INT_MAX, check_numbers
from ringmq.client.errors import BodyCrcError
from ringmq.client.retry import backoff_ms
from ringmq.remoting.client_headers import ConsumerSendMsgBackRequestHeader
from ringmq.remoting.message import MessageExt

DELAY_LEVEL_MAX = 18
DEAD_LETTER_LEVEL = -1
RECONSUME_TIMES_MAX = 16


class RetryLater(Exception):
    """Raised by a handler: deliver the message again after the broker's delay level 1 to 18 (1s 5s 10s ... 2h)."""

    def __init__(self, delay_level: int) -> None:
        if not 1 <= delay_level <= DELAY_LEVEL_MAX:
            raise ValueError(f"delay_level must be 1 to {DELAY_LEVEL_MAX}, not {delay_level}")
        super().__init__(f"again after delay level {delay_level}")
        self.delay_level = delay_level


class RejectMessage(Exception):
    """Raised by a handler: the message can never be processed. It goes to the group's dead letters at once."""


@dataclass(frozen=True, slots=True)
class ConsumeRetry:
    """The repetition of failed messages. Times in ms.

    After `max_reconsume_times` repetitions the broker moves the message to `%DLQ%group`. None is stock's default, 16
    for concurrent consumption and no limit for ordered. `delay_level` 0 lets the broker choose by the number of
    failures (10 s, 30 s, 1 min ... 2 h). The pause in this client grows from `local_first_ms` to `local_max_ms`,
    doubling. It applies if the broker refuses the message, and for assigned queues. An ordered queue waits
    `suspend_ms` after a failure.
    """

    max_reconsume_times: int | None = None
    delay_level: int = 0
    local_first_ms: int = 5000
    local_max_ms: int = 60_000
    suspend_ms: int = 1000

    def __post_init__(self) -> None:
        if self.max_reconsume_times is not None:
            check_numbers(0, INT_MAX, max_reconsume_times=self.max_reconsume_times)
        check_numbers(0, DELAY_LEVEL_MAX, delay_level=self.delay_level)
        pauses = ("local_first_ms", "local_max_ms", "suspend_ms")
        check_numbers(1, INT_MAX, **{name: getattr(self, name) for name in pauses})

    def local_pause_s(self, failures_here: int) -> float:
        """Return the pause before the repetition that follows `failures_here` failures in this client."""
        return backoff_ms(failures_here, 0.0, self.local_first_ms, self.local_max_ms) / 1000


@dataclass(frozen=True, slots=True)
class SendBack:
    """Send the message back to the broker. If the broker refuses it, try again in this client."""

    delay_level: int


@dataclass(frozen=True, slots=True)
class TryHere:
    """Try again in this client after a pause."""

    pause_s: float


class Drop:
    """Count the message as processed."""


Verdict = SendBack | TryHere | Drop


def after_failure(
    message: MessageExt,
    error: BaseException,
    retry: ConsumeRetry,
    *,
    ordered: bool,
    broadcast: bool,
    assigned: bool = False,
) -> Verdict:
    """Return the action for `message`, whose handler raised `error`.

    `message.reconsume_times` does not count this failure. With `assigned` the queues were assigned by hand.
    """
    rejected = isinstance(error, RejectMessage | BodyCrcError)  # a copy in the retry topic would have a right CRC
    if broadcast and (rejected or not ordered):
        return Drop()
    if rejected:
        return SendBack(DEAD_LETTER_LEVEL)
    if ordered:
        limit = retry.max_reconsume_times
        if limit is not None and message.reconsume_times >= limit:
            return Drop() if broadcast else SendBack(DEAD_LETTER_LEVEL)
        return TryHere(retry.suspend_ms / 1000)
    if assigned:  # the topic of retries may have no reader
        limit = RECONSUME_TIMES_MAX if retry.max_reconsume_times is None else retry.max_reconsume_times
        if message.reconsume_times >= limit:
            return SendBack(DEAD_LETTER_LEVEL)
        return TryHere(retry.local_pause_s(message.reconsume_times + 1))
    return SendBack(error.delay_level if isinstance(error, RetryLater) else retry.delay_level)


def send_back_fields(message: MessageExt, group: str, delay_level: int, retry: ConsumeRetry) -> dict[str, str]:
    """Return the ext fields of CONSUMER_SEND_MSG_BACK."""
    limit = retry.max_reconsume_times
    return ConsumerSendMsgBackRequestHeader(
        offset=message.commit_log_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=message.topic,
        unit_mode=False,
        max_reconsume_times=RECONSUME_TIMES_MAX if limit is None else limit,
    ).encode()
