"""The settings of a slice's read."""

from dataclasses import dataclass
from typing import Literal

from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.rows import BatchShape

Transport = Literal["auto", "shm", "tcp"]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a slice's read, pickled to tasks.

    `window_bytes` of the log are mapped at a time. A batch ends at `batch_bytes` of values (Spark is fastest with 1
    to 2 MiB) or `batch_rows` rows. With `reuse_buffers` the next batch overwrites the last one: for callers like
    Spark, which serialises each batch before that.
    """

    transport: Transport = "auto"
    verify_crc: bool = False
    fail_on_data_loss: bool = True
    window_bytes: int = 4 << 20
    batch_bytes: int = 1 << 20
    batch_rows: int = 8192
    reuse_buffers: bool = False
    pull_group: str = "spark-ringmq"  # the consumer group in whose name tasks pull over tcp

    @classmethod
    def of(cls, options: ReadOptions) -> "ReadSettings":
        """Return the settings of a Spark task."""
        return cls(
            transport=options.transport,
            verify_crc=options.verify_crc,
            fail_on_data_loss=options.fail_on_data_loss,
            reuse_buffers=True,
            pull_group=options.group_id_prefix,
        )

    def shape(self, columns: tuple[str, ...], broker: str) -> BatchShape:
        """Return the shape of batches of these columns."""
        return BatchShape(columns, broker, self.batch_bytes, self.batch_rows, self.reuse_buffers)
