"""Record copies in the form of the C core: edits and copies of `ringmq.store.record_copy` as structs."""

from collections.abc import Sequence
from typing import Any

from ringmq.native import ffi, lib
from ringmq.store.record_copy import CopyLimits, EditKind, From, PairEdit, RecordCopy


class NativeEdits:
    """Lists of edits in one array, their texts in one buffer. Equal lists are stored once."""

    def __init__(self) -> None:
        self._edits: list[PairEdit] = []
        self._ranges: dict[tuple[PairEdit, ...], tuple[int, int]] = {}
        self._by_id: dict[int, tuple[int, int]] = {}
        """By identity, so that a list shared by many copies is hashed once."""
        self._kept: list[tuple[PairEdit, ...]] = []

    @property
    def count(self) -> int:
        """Number of edits."""
        return len(self._edits)

    @property
    def lists(self) -> int:
        """Number of lists, equal ones counted as often as they came as objects of their own."""
        return len(self._kept)

    def range_of(self, edits: tuple[PairEdit, ...]) -> tuple[int, int]:
        """Return (edits_from, edits_count) of the list, which is added if it is new."""
        found = self._by_id.get(id(edits))
        if found is None:
            found = self._ranges.setdefault(edits, (len(self._edits), len(edits)))
            if found[0] == len(self._edits):
                self._edits += edits
            self._by_id[id(edits)] = found
            self._kept.append(edits)
        return found

    def fill(self, batch: Any) -> list[Any]:
        """Set the edits of a struct rmq_copy_batch. Return the objects that must live as long as the batch."""
        native, texts = ffi.new("struct rmq_pair_edit[]", len(self._edits)), bytearray()
        for to, edit in zip(native, self._edits, strict=True):
            to.kind, to.name_at, to.name_length = edit.kind, len(texts), len(edit.name)
            texts += edit.name
            _fill_value(to, edit, texts)
        kept = ffi.from_buffer(bytes(texts))
        batch.edits, batch.edits_count, batch.texts, batch.texts_bytes = native, len(self._edits), kept, len(texts)
        return [native, kept]


def _fill_value(to: Any, edit: PairEdit, texts: bytearray) -> None:
    if isinstance(edit.value, From):
        to.value_from = edit.value
    elif isinstance(edit.value, int):
        to.value_from, to.number = lib.RMQ_FROM_NUMBER, edit.value
    elif edit.kind != EditKind.REMOVE:
        to.value_from, to.value_at, to.value_length = lib.RMQ_FROM_TEXT, len(texts), len(edit.value)
        texts += edit.value


def fill_copy(to: Any, copy: RecordCopy, edits: NativeEdits) -> Any:
    """Set a struct rmq_record_copy. Return the buffer of the record, which must live until the copy is made."""
    data = ffi.from_buffer(copy.data)
    to.record, to.record_bytes = data, len(copy.data)
    to.position = -1 if copy.position is None else copy.position
    to.topic_id, to.queue_slot, to.queue_id = copy.topic_id, copy.queue_slot, copy.queue_id
    to.edits_from, to.edits_count = edits.range_of(copy.edits)
    to.sys_flag_clear, to.sys_flag_set = copy.sys_flag_clear, copy.sys_flag_set
    to.prepared_transaction_offset = copy.prepared_transaction_offset
    to.flags = lib.RMQ_COPY_CHECK_CRC * copy.check_crc | lib.RMQ_COPY_NO_WAIT * copy.no_wait
    if copy.flag is not None:
        to.flags |= lib.RMQ_COPY_SET_FLAG
        to.flag = copy.flag
    if copy.reconsume_times is not None:
        to.flags |= lib.RMQ_COPY_SET_RECONSUME_TIMES
        to.reconsume_times = copy.reconsume_times
    elif copy.reconsume_times_added:
        to.flags |= lib.RMQ_COPY_ADD_RECONSUME_TIMES
        to.reconsume_times = copy.reconsume_times_added
    if copy.born_time_ms is not None:
        to.flags |= lib.RMQ_COPY_SET_BORN_TIME
        to.born_time_ms = copy.born_time_ms
    if copy.born_host is not None:
        host, to.born_port = copy.born_host
        to.flags |= lib.RMQ_COPY_SET_BORN_HOST | lib.RMQ_COPY_BORN_V6 * (len(host) == 16)
        to.born_host = host.ljust(16, b"\0")
    if copy.no_target is not None:
        to.queue_slot, to.cause, to.detail = lib.RMQ_NONE, copy.no_target.cause, copy.no_target.detail
    return data


class NativeCopies:
    """Copies for one or more calls of rmq_record_copies; `requests[i]` belongs to `copies[i]`."""

    def __init__(
        self, copies: Sequence[RecordCopy], limits: CopyLimits, arena: Any, arena_at: int, arena_end: int
    ) -> None:
        self.count = len(copies)
        self.copies = ffi.new("struct rmq_record_copy[]", self.count)
        self.requests = ffi.new("struct rmq_request[]", self.count)
        self.batch = ffi.new("struct rmq_copy_batch *")
        edits = NativeEdits()
        self._kept = [fill_copy(to, copy, edits) for to, copy in zip(self.copies, copies, strict=True)]
        self._kept += edits.fill(self.batch)
        self._kept.append(ffi.from_buffer(arena, require_writable=True))
        self.batch.arena = self._kept[-1]
        self.batch.arena_at, self.batch.arena_end = arena_at, arena_end
        self.batch.body_bytes_max = limits.body_bytes_max
        self.batch.properties_bytes_max = limits.properties_bytes_max

    def run(self, first: int = 0) -> int:
        """Make the copies from number `first` on. Return the number of the first that did not fit, or `count`."""
        done = lib.rmq_record_copies(self.copies + first, self.count - first, self.batch, self.requests + first)
        return first + int(done)
