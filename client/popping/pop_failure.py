"""The decision about a popped message whose handler failed, without IO.

The broker delivers a popped message again and again (only a setting of RingMQ's ends that), so the consumer counts. A
failed message becomes visible to the group after a pause that grows with the failures, as stock's push consumer has it
for POP: 10 s, 30 s, 1 min ... 2 h. Those are the broker's delay levels from 3 on.
"""

from dataclasses import dataclass

from ringmq.client.consuming.consume_retry import (
    DEAD_LETTER_LEVEL,
    DELAY_LEVEL_MAX,
    RECONSUME_TIMES_MAX,
    ConsumeRetry,
    Drop,
    RejectMessage,
    TryHere,
    after_failure,
)
from ringmq.remoting.message import MessageExt

_S, _MIN, _H = 1000, 60_000, 3_600_000
DELAYS_MS = (
    1 * _S, 5 * _S, 10 * _S, 30 * _S, 1 * _MIN, 2 * _MIN, 3 * _MIN, 4 * _MIN, 5 * _MIN, 6 * _MIN, 7 * _MIN, 8 * _MIN,
    9 * _MIN, 10 * _MIN, 20 * _MIN, 30 * _MIN, 1 * _H, 2 * _H,
)  # fmt: skip
"""The delay levels from 1 on (`messageDelayLevel` by default). The broker's own table does not count for POP."""
FIRST_LEVEL = 3


@dataclass(frozen=True, slots=True)
class ComeAgain:
    """Let the group have the message again after a pause."""

    delay_ms: int


class DeadLetter:
    """Store the message among the dead letters of the group, then acknowledge it."""


def after_pop_failure(
    message: MessageExt, error: BaseException, retry: ConsumeRetry, *, ordered: bool
) -> ComeAgain | DeadLetter | TryHere:
    """Return the action for a popped message, whose handler raised `error`.

    `message.reconsume_times` does not count this failure.
    """
    verdict = after_failure(message, error, retry, ordered=ordered, broadcast=False)
    if isinstance(verdict, TryHere):
        return verdict
    assert not isinstance(verdict, Drop)
    if verdict.delay_level == DEAD_LETTER_LEVEL or message.reconsume_times >= _limit(retry):
        return DeadLetter()
    level = verdict.delay_level or min(FIRST_LEVEL + message.reconsume_times, DELAY_LEVEL_MAX)
    return ComeAgain(DELAYS_MS[level - 1])


def check_times(message: MessageExt, retry: ConsumeRetry, *, ordered: bool) -> None:
    """Raise `RejectMessage` for a message that came too often: consumers have died of it, or held it for too long.

    An ordered group without a limit of its own has none.
    """
    if ordered and retry.max_reconsume_times is None:
        return
    if message.reconsume_times > _limit(retry):
        raise RejectMessage(f"it has come {message.reconsume_times + 1} times")


def _limit(retry: ConsumeRetry) -> int:
    return RECONSUME_TIMES_MAX if retry.max_reconsume_times is None else retry.max_reconsume_times
