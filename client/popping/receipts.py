"""Receipts: a pop gives one for each message, an acknowledgement gives it back (`ExtraInfoUtil`). No IO."""

from __future__ import annotations

from typing import NamedTuple

from ringmq.remoting.names import is_retry_topic, pop_retry_topic

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
"""Flags of receipts: the message lies in the topic itself, or in a topic of retries of either form."""


class BadReceipt(ValueError):
    """A text that is no receipt."""


class Receipt(NamedTuple):
    """The fields of a receipt, in the order of its text. Times in ms, the pop time by the broker's clock.

    `queue_id` and `offset` are those of the topic in which the message lies (`topic_of`).
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    flag: str
    broker_name: str
    queue_id: int
    offset: int

    def text(self) -> str:
        """Return the text for requests (`extraInfo`)."""
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Return the receipt in `POP_CK` or `extraInfo`. Fields behind it are left out. Raises `BadReceipt`."""
        fields = text.split(" ")
        try:
            start, pop_time, invisible, revive_queue, flag, broker, queue_id, offset = fields[:8]
            numbers = int(start), int(pop_time), int(invisible), int(revive_queue)
            receipt = cls(*numbers, flag, broker, int(queue_id), int(offset))
        except ValueError:
            raise BadReceipt(f"{text[:200]!r} is no receipt of eight fields") from None
        if flag not in (NORMAL, RETRY_V1, RETRY_V2):
            raise BadReceipt(f"{text[:200]!r} has the flag {flag[:8]!r}, not 0, 1 or 2")
        return receipt


def flag_of(stored_topic: str) -> str:
    """Return the flag of a message that lies in `stored_topic`."""
    if not is_retry_topic(stored_topic):
        return NORMAL
    return RETRY_V2 if "+" in stored_topic else RETRY_V1


def topic_of(flag: str, group: str, topic: str) -> str:
    """Return the topic in which a message of `topic` lies, by the flag of its receipt."""
    return topic if flag == NORMAL else pop_retry_topic(group, topic, is_v2=flag == RETRY_V2)
