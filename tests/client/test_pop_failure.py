"""What becomes of popped messages whose handlers failed."""

import pytest

from ringmq.client.consuming.consume_retry import ConsumeRetry, RejectMessage, RetryLater, TryHere
from ringmq.client.popping.pop_failure import DELAYS_MS, ComeAgain, DeadLetter, after_pop_failure, check_times
from ringmq.remoting.message import MessageExt

ERROR = RuntimeError("no")


def message(reconsume_times: int = 0) -> MessageExt:
    return MessageExt("T", b"", reconsume_times=reconsume_times)


@pytest.mark.parametrize(
    ("ordered", "error", "reconsume_times", "retry", "verdict"),
    [
        (False, ERROR, 0, ConsumeRetry(), ComeAgain(10_000)),
        (False, ERROR, 1, ConsumeRetry(), ComeAgain(30_000)),
        (False, ERROR, 15, ConsumeRetry(), ComeAgain(7_200_000)),
        (False, ERROR, 16, ConsumeRetry(), DeadLetter),
        (False, ERROR, 20, ConsumeRetry(max_reconsume_times=100), ComeAgain(7_200_000)),
        (False, ERROR, 2, ConsumeRetry(max_reconsume_times=3, delay_level=1), ComeAgain(1000)),
        (False, ERROR, 3, ConsumeRetry(max_reconsume_times=3, delay_level=1), DeadLetter),
        (False, ERROR, 0, ConsumeRetry(max_reconsume_times=0), DeadLetter),
        (False, RetryLater(5), 3, ConsumeRetry(), ComeAgain(60_000)),
        (False, RetryLater(5), 16, ConsumeRetry(), DeadLetter),
        (False, RejectMessage(), 0, ConsumeRetry(), DeadLetter),
        (True, ERROR, 2, ConsumeRetry(suspend_ms=500), TryHere(0.5)),
        (True, ERROR, 1000, ConsumeRetry(suspend_ms=500), TryHere(0.5)),
        (True, ERROR, 3, ConsumeRetry(max_reconsume_times=3), DeadLetter),
        (True, RetryLater(5), 0, ConsumeRetry(), TryHere(1.0)),
        (True, RejectMessage(), 0, ConsumeRetry(), DeadLetter),
    ],
)
def test_the_verdict(
    ordered: bool, error: Exception, reconsume_times: int, retry: ConsumeRetry, verdict: object
) -> None:
    found = after_pop_failure(message(reconsume_times), error, retry, ordered=ordered)
    assert isinstance(found, DeadLetter) if verdict is DeadLetter else found == verdict


@pytest.mark.parametrize(
    ("ordered", "limit", "reconsume_times", "comes_too_often"),
    [
        (False, None, 16, False),
        (False, None, 17, True),
        (False, 2, 3, True),
        (True, None, 99, False),
        (True, 2, 3, True),
    ],
)
def test_a_message_that_no_handler_survives_ends(
    ordered: bool, limit: int | None, reconsume_times: int, comes_too_often: bool
) -> None:
    retry = ConsumeRetry(max_reconsume_times=limit)
    if comes_too_often:
        with pytest.raises(RejectMessage, match=f"it has come {reconsume_times + 1} times"):
            check_times(message(reconsume_times), retry, ordered=ordered)
    else:
        check_times(message(reconsume_times), retry, ordered=ordered)


def test_the_levels_are_those_of_a_broker_without_own_ones() -> None:
    from ringmq.broker.config.broker_config import BrokerConfig

    units = {"s": 1000, "m": 60_000, "h": 3_600_000}
    levels = BrokerConfig().message_delay_level.split()
    assert tuple(int(level[:-1]) * units[level[-1]] for level in levels) == DELAYS_MS
