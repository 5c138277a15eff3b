"""A catalog that is told what to answer."""

from dataclasses import dataclass, field

from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey

STORED_FIRST_MS = 1000
STORED_EVERY_MS = 10


@dataclass
class FakeCatalog:
    """Queues by (topic, broker, queue id) with their bounds; offset n of a queue is stored at 1000 + 10 n ms."""

    known: dict[tuple[str, str, int], tuple[int, int]]
    options: ReadOptions = field(default_factory=ReadOptions)
    looks: int = 0

    def brokers(self) -> tuple[BrokerLocation, ...]:
        return tuple(BrokerLocation(name, f"{name}:10911") for name in sorted({broker for _, broker, _ in self.known}))

    def queues(self) -> list[QueueKey]:
        self.looks += 1
        return sorted(QueueKey(*name) for name in self.known if self.options.topics.wants(name[0]))

    def ends(self) -> dict[QueueKey, int]:
        return {key: self.bounds(key)[1] for key in self.queues()}

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        return self.known.get(key, (0, 0))

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        first, end = self.bounds(key)
        offset = max(first, -(-(timestamp_ms - STORED_FIRST_MS) // STORED_EVERY_MS))
        return offset if offset < end else None

    def log_index(self) -> None:
        return None
