"""The question of send-backs to control: the group and its topics of retries."""

from __future__ import annotations

from ringmq.broker.requests.questions import Control
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.ipc.asks import Ask
from ringmq.native import lib


def make_retry_topics(control: Control, record: Ask, now_ms: int) -> None:
    """Make what a send-back needs. The answer comes once it is on disk."""
    control.answer_when_saved(record, lambda: control.make_retry_topics(RetryAsk.decode(record.payload), now_ms))


QUESTIONS = {lib.RMQ_INBOX_RETRY: make_retry_topics}
