"""Messages as pops give them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ringmq.client.popping.receipts import NORMAL, Receipt
from ringmq.remoting.message import MessageExt

NO_RECEIPT = Receipt(0, 0, 0, 0, NORMAL, "", 0, 0)


@dataclass(slots=True)
class PoppedMessage(MessageExt):
    """A message that other consumers of the group cannot get until its invisible time is over.

    `topic` is the subscribed topic, also for a message that came again. That one lies in a topic of retries
    (`read_topic`), and `queue_id` and `queue_offset` are those of that topic. `reconsume_times` counts the deliveries
    before this one. `receipt` is the current one: a change of the invisible time replaces it. `expires_at` is the end
    of the invisible time by this process's monotonic clock (seconds).
    """

    receipt: Receipt = NO_RECEIPT
    expires_at: float = 0.0

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.reconsume_times + 1

    @property
    def invisible_until_ms(self) -> int:
        """The end of the invisible time, by the broker's clock."""
        return self.receipt.pop_time_ms + self.receipt.invisible_ms

    @property
    def seconds_left(self) -> float:
        """The rest of the invisible time, below 0 if it is over."""
        return self.expires_at - time.monotonic()

    def renew(self, receipt: Receipt, expires_at: float) -> None:
        """Take the receipt of a change of the invisible time."""
        self.receipt = receipt
        self.expires_at = expires_at
