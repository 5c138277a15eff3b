"""The ends of all queues of a live broker in one look, from the tables of its shared plane, without a request.

A stream looks at every trigger. Walking ConsumeQueue files takes milliseconds for a hundred queues. A copy of this
table takes a tenth of one for ten thousand. Dispatch publishes a queue's maximum when its units are written, and
never beyond the confirm offset.
"""

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringmq.ipc.segment import open_segment, plane_name
from ringmq.native import ffi, lib
from ringmq.spark_bridge.slices import QueueKey
from ringmq.spark_bridge.struct_types import struct_type

_TOPIC = struct_type("struct rmq_topic", {"config": "<u8", "name_length": "<u2", "name": "V256"})
_QUEUE = struct_type("struct rmq_queue", {"topic_id": "<u4", "queue_id": "<u4", "max_offset": "<i8"})


class LiveQueues:
    """The queues of the wanted topics in one run of one broker. The tables outlive the run.

    `start_id` shows whether they are those of the current run.
    """

    def __init__(self, plane: mmap.mmap, broker: str, wants: Callable[[str], bool]) -> None:
        self._header: Any = ffi.cast("struct rmq_plane_header *", ffi.from_buffer("char *", plane))
        header = self._header
        self.start_id = int(header.start_id)
        self._broker = broker
        self._wants = wants
        self._topics = np.frombuffer(plane, _TOPIC, header.tables.topic_capacity, header.tables.topics_at)
        self._queues = np.frombuffer(plane, _QUEUE, header.tables.queue_capacity, header.tables.queues_at)
        self._queue_count = -1
        self._configs: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._keys: list[QueueKey] = []
        self._slots: NDArray[np.intp] = np.empty(0, np.intp)

    @classmethod
    def open(cls, store_root: Path, broker: str, wants: Callable[[str], bool]) -> "LiveQueues | None":
        """Return the tables of the broker that was started last on this store, None if there are none or reading is
        denied.
        """
        try:
            plane = open_segment(plane_name(store_root), "plane", writable=False)
        except (FileNotFoundError, PermissionError, ValueError):
            return None
        if lib.rmq_plane_check(ffi.from_buffer("char *", plane), len(plane)) < 0:
            return None  # of another build
        return cls(plane, broker, wants)

    def ends(self) -> dict[QueueKey, int]:
        """Return the offset behind the last readable message of every queue of the wanted topics."""
        queue_count = int(self._header.tables.queue_count)
        configs = self._topics["config"][: self._header.tables.topic_count + 1].copy()
        if queue_count != self._queue_count or not np.array_equal(configs, self._configs):
            self._list_queues(configs, queue_count)
        return dict(zip(self._keys, self._queues["max_offset"][self._slots].tolist(), strict=True))

    def _list_queues(self, configs: NDArray[np.uint64], queue_count: int) -> None:
        """List the queues of live topics only: a topic that was deleted and made again has another id."""
        self._configs, self._queue_count = configs, queue_count
        queues = self._queues[:queue_count]
        topic_ids, queue_ids = queues["topic_id"].tolist(), queues["queue_id"].tolist()
        live = np.flatnonzero(configs >> np.uint64(40) & np.uint64(lib.RMQ_TOPIC_LIVE))
        names = {number: self._name(number) for number in live.tolist()}
        wanted = {number: name for number, name in names.items() if self._wants(name)}
        slots = [slot for slot in range(queue_count) if topic_ids[slot] in wanted]
        self._keys = [QueueKey(wanted[topic_ids[slot]], self._broker, queue_ids[slot]) for slot in slots]
        self._slots = np.array(slots, np.intp)

    def _name(self, topic_id: int) -> str:
        topic = self._topics[topic_id]
        return bytes(topic["name"])[: int(topic["name_length"])].decode("utf-8", "replace")
