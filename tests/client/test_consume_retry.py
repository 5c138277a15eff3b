"""What becomes of messages whose handlers failed."""

import pytest

from ringmq.client.consuming.consume_retry import (
    DEAD_LETTER_LEVEL,
    ConsumeRetry,
    Drop,
    RejectMessage,
    RetryLater,
    SendBack,
    TryHere,
    after_failure,
    send_back_fields,
)
from ringmq.client.errors import BodyCrcError
from ringmq.remoting.message import MessageExt

ERROR = RuntimeError("no")


def message(reconsume_times: int = 0) -> MessageExt:
    properties = {"UNIQ_KEY": "ID"}
    return MessageExt("T", b"", properties, reconsume_times=reconsume_times, commit_log_offset=77)


@pytest.mark.parametrize(
    ("ordered", "broadcast", "error", "reconsume_times", "verdict"),
    [
        (False, False, ERROR, 0, SendBack(0)),
        (False, False, ERROR, 99, SendBack(0)),  # the broker counts
        (False, False, RetryLater(5), 0, SendBack(5)),
        (False, False, RejectMessage(), 0, SendBack(DEAD_LETTER_LEVEL)),
        (False, False, BodyCrcError(MessageExt("T", b"x")), 0, SendBack(DEAD_LETTER_LEVEL)),
        (True, False, ERROR, 2, TryHere(1.0)),
        (True, False, RetryLater(5), 2, TryHere(1.0)),
        (True, False, ERROR, 3, SendBack(DEAD_LETTER_LEVEL)),
        (True, False, RejectMessage(), 0, SendBack(DEAD_LETTER_LEVEL)),
        (True, True, ERROR, 2, TryHere(1.0)),
    ],
)
def test_the_verdict(ordered: bool, broadcast: bool, error: Exception, reconsume_times: int, verdict: object) -> None:
    retry = ConsumeRetry(max_reconsume_times=3)
    assert after_failure(message(reconsume_times), error, retry, ordered=ordered, broadcast=broadcast) == verdict


@pytest.mark.parametrize("ordered", [False, True])
def test_a_broadcasting_member_drops_what_it_gives_up(ordered: bool) -> None:
    retry = ConsumeRetry(max_reconsume_times=3)
    assert isinstance(after_failure(message(3), ERROR, retry, ordered=ordered, broadcast=True), Drop)
    assert isinstance(after_failure(message(), RejectMessage(), retry, ordered=ordered, broadcast=True), Drop)


@pytest.mark.parametrize(
    ("error", "reconsume_times", "verdict"),
    [
        (ERROR, 0, TryHere(5.0)),
        (RetryLater(5), 1, TryHere(10.0)),
        (ERROR, 16, SendBack(DEAD_LETTER_LEVEL)),
        (RejectMessage(), 0, SendBack(DEAD_LETTER_LEVEL)),
    ],
)
def test_what_fails_of_an_assigned_queue_is_tried_again_here(
    error: Exception, reconsume_times: int, verdict: object
) -> None:
    given = message(reconsume_times)
    assert after_failure(given, error, ConsumeRetry(), ordered=False, broadcast=False, assigned=True) == verdict


def test_an_ordered_consumer_without_a_limit_never_gives_up() -> None:
    verdict = after_failure(message(1_000), ERROR, ConsumeRetry(), ordered=True, broadcast=False)
    assert verdict == TryHere(1.0)


def test_pauses_here_double_up_to_their_bound() -> None:
    retry = ConsumeRetry(local_first_ms=1000, local_max_ms=5000)
    assert [retry.local_pause_s(n) for n in range(1, 6)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_the_fields_of_a_send_back() -> None:
    assert send_back_fields(message(), "g", 4, ConsumeRetry()) == {
        "offset": "77",
        "group": "g",
        "delayLevel": "4",
        "originMsgId": "ID",
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    assert send_back_fields(message(), "g", 0, ConsumeRetry(max_reconsume_times=0))["maxReconsumeTimes"] == "0"


@pytest.mark.parametrize(
    "wrong",
    [{"max_reconsume_times": -1}, {"delay_level": 19}, {"delay_level": -1}, {"local_first_ms": 0}, {"suspend_ms": 0}],
)
def test_values_out_of_range_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ConsumeRetry(**wrong)
    with pytest.raises(ValueError, match="delay_level"):
        RetryLater(0)
