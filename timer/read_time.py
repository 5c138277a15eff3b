"""The time up to which a reader of a queue has met all records that were answered."""


class ReadTime:
    """Records are answered when they are confirmed, perhaps before dispatch has put them into their queues.

    So an offset of the log is kept with the time at which it was the end of what is confirmed. When dispatch has come
    to it, the queue has all that was answered before that time.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._confirmed_ms = self._complete_ms = -1

    def complete_ms(self, confirm_offset: int, dispatched_offset: int, now_ms: int) -> int:
        """Return the time before which all answered records are in their queues, -1 while none is known. Belongs before
        the read. `now_ms` must be older than the offsets."""
        if dispatched_offset >= confirm_offset:
            self._complete_ms = now_ms
        elif dispatched_offset >= self._offset:
            self._complete_ms = self._confirmed_ms
        else:
            return self._complete_ms
        self._offset, self._confirmed_ms = confirm_offset, now_ms
        return self._complete_ms
