"""The state of a store as recovery finds it and leaves it."""

from msgspec import Struct, field

from ringmq.store.checkpoint import Checkpoint
from ringmq.store.recovery_queues import QueueState

CLEAN = "clean"
SAME_BOOT = "same boot"
CHECKPOINT = "checkpoint"
"""Modes: see `recovery`."""


class RecoveredStore(Struct):
    """The state of a store that is ready for writes."""

    mode: str
    append_offset: int = 0
    redispatch_offset: int = 0
    min_offset: int = 0
    unsynced_offset: int = 0  # log bytes from here on may be in the page cache only
    is_tail_enough: bool = True  # a start in this boot would find all that dispatch has to redo
    last_store_time_ms: int = 0
    scanned_records: int = 0
    cut_bytes: int = 0
    queues: dict[tuple[str, int], QueueState] = field(default_factory=dict)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    not_indexed: int = 0  # records with impossible values that the scan has met
    not_indexed_from: int = 0  # the first of them
    bad_bodies: int = 0  # records that the scan has met whose body has a wrong CRC
    damaged: list[tuple[int, int]] = field(default_factory=list)  # log ranges of records that the scan passed over
    reasons: list[str] = field(default_factory=list)
    """Lines about damage, and about bytes or entries that it has cost."""
    notes: list[str] = field(default_factory=list)
    """Lines about usual steps after a kill."""
    stage_ms: dict[str, float] = field(default_factory=dict)

    @property
    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queue offset table: the offset of each queue's next message."""
        return {name: state.next_offset for name, state in self.queues.items()}

    @property
    def queues_end(self) -> int:
        """Return the log offset behind the last record that a queue names, -1 without one."""
        return max((state.physical_end for state in self.queues.values()), default=-1)
