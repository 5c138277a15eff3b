"""Which messages were rolled, by their copies in the timer topic.

Windows and precisions of earlier processes do not count.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from ringmq.broker.requests.turns import Steps
from ringmq.native import ffi, lib
from ringmq.store.queue_reader import (
    DamagedError,
    DeletedError,
    NotConfirmedError,
    NotMappedError,
    QueueReader,
    RecordBatch,
)

BATCH = 512


class RolledCopies:
    """The sources of rolled copies (rmq_timer_rolled_sources) among the records of [offset, `end`)."""

    def __init__(self, offset: int, sources: Iterable[int] = ()) -> None:
        self.end = offset
        self.sources = set(sources)

    def read(self, reader: QueueReader, queue_slot: int, role: int, secret: Any, end: int) -> Steps[array[int]]:
        """Read the records up to `end`, in steps. Returns the sources in ascending order."""
        batch, found = RecordBatch(BATCH), ffi.new("uint64_t[]", BATCH)
        while self.end < end:
            try:
                reader.hold(batch, queue_slot, self.end)
                count = lib.rmq_timer_rolled_sources(role, batch.records, batch.units, batch.count, secret, found)
                self.sources.update(found[0:count])
                if batch.next_offset == self.end:
                    break
                self.end = batch.next_offset
            except DeletedError as error:
                self.end = max(self.end + 1, error.next_offset)
            except DamagedError:
                self.end += 1
            except NotConfirmedError:
                break
            except NotMappedError:
                pass  # it is tried again
            finally:
                batch.release()
            yield
        return array("Q", sorted(self.sources))
