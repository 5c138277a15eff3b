"""The result of a send."""

from dataclasses import dataclass
from enum import Enum

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message_queue import MessageQueue


class SendStatus(Enum):
    """The message is stored. All but OK mean that a wait for disk or replicas ended without success.

    SLAVE_NOT_AVAILABLE means that there was no replica to wait for.
    """

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


@dataclass(frozen=True, slots=True, repr=False)
class SendResult:
    """The stored position of a message (or of the first one of a batch).

    `message_ids` are the UNIQ_KEYs, one per message. `offset_message_ids` name the positions in the broker's log.
    `recall_handle` recalls a delayed message (`Producer.recall`), if the broker returned one.
    """

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    message_ids: tuple[str, ...]
    offset_message_ids: tuple[str, ...]
    transaction_id: str | None = None
    recall_handle: str | None = None

    def __repr__(self) -> str:
        """Return status, place and id on one line: a result is often printed."""
        queue, count = self.queue, len(self.message_ids)
        place = f"{queue.topic}/{queue.broker_name}/{queue.queue_id} offset {self.queue_offset}"
        ids = self.message_ids[0] if count == 1 else f"{count} messages"
        more = "".join(
            (
                f" transaction {self.transaction_id}" if self.transaction_id else "",
                " with recall handle" if self.recall_handle else "",
            )
        )
        return f"<SendResult {self.status.name} {place} {ids}{more}>"

    @property
    def message_id(self) -> str:
        """The UNIQ_KEY of the (first) message."""
        return self.message_ids[0]
