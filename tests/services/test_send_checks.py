"""Checks of guests at sends that read workers leave to control: the reasons why no rule covers a message."""

import pytest

from ringmq.broker.requests.cold_send import ColdSend
from ringmq.ipc.guests import parts


def refusals(*, is_batch: bool = False, **pairs: str) -> list[str | None]:
    """The words of delays, timers and transactions, without a published rule."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items()).encode()
    send = ColdSend(pairs, text, is_batch, lambda: ())
    return [check(send) for check in parts("send_check")]


def test_an_ordinary_message_is_nobodys() -> None:
    assert refusals(KEYS="k") == [None, None, None]
    assert refusals(DELAY="0") == refusals(DELAY="-3") == refusals(TRAN_MSG="false") == [None, None, None]


@pytest.mark.parametrize(
    ("pairs", "place", "remark"),
    [
        ({"DELAY": "3"}, 0, "DELAY = 3 is no delay level"), ({"DELAY": "soon"}, 0, "DELAY = soon is no delay level"),
        ({"TIMER_DELAY_SEC": "9"}, 1, "TIMER_DELAY_SEC = 9: the broker has no topic rmq_sys_wheel_timer"),
        ({"TRAN_MSG": "TRUE"}, 2, "TRAN_MSG = true: the broker has no topic RMQ_SYS_TRANS_HALF_TOPIC"),
        ({"TRAN_MSG": "true", "UNIQ_KEY": "k" * 300}, 2, "UNIQ_KEY of a half message: 300 bytes, limit"),
    ],
)  # fmt: skip
def test_a_message_that_no_rule_covers_has_a_reason(pairs: dict[str, str], place: int, remark: str) -> None:
    found = refusals(**pairs)
    assert remark in (found[place] or "") and [bool(text) for text in found].count(True) == 1


def test_a_half_message_in_a_batch_is_told() -> None:
    assert refusals(is_batch=True, TRAN_MSG="true")[2] == "TRAN_MSG = true: a half message cannot be in a batch"
