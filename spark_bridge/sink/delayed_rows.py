"""Rows with a delay.

Each is a message of its own, as no broker accepts delays in batches. Slow, row by row, and rare.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from ringmq.client.connections.identity import new_key_generator, now_ms
from ringmq.client.producing.send_request import BodyRules, SendRequest, compose_message, prepare_message
from ringmq.spark_bridge.sink.columns import LATER_COLUMNS
from ringmq.spark_bridge.sink.errors import RowError

DELAY_LEVEL, DELIVER_AT = LATER_COLUMNS
PROPERTY_OF = {DELAY_LEVEL: "DELAY", DELIVER_AT: "TIMER_DELIVER_MS"}

DelayedRequests = Callable[[str | None], Iterator[SendRequest]]


def split_delayed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, DelayedRequests]:
    """Return (rows without a delay, rows with one as requests). The latter need the option topic."""
    columns = [name for name in LATER_COLUMNS if name in batch.schema.names]
    if not columns:
        return batch, lambda _: iter(())
    is_delayed = np.zeros(batch.num_rows, bool)
    for name in columns:
        is_delayed |= batch.column(name).is_valid().to_numpy(zero_copy_only=False)
    delayed = batch.filter(pa.array(is_delayed))
    return batch.filter(pa.array(~is_delayed)), lambda topic: _requests(delayed, topic)


def _requests(batch: pa.RecordBatch, topic: str | None) -> Iterator[SendRequest]:
    keys = new_key_generator()
    for number, row in enumerate(batch.to_pylist()):
        properties = {pair["key"]: _text(pair["value"]) for pair in row.get("headers") or ()}
        if row.get(DELAY_LEVEL) is not None:
            properties[PROPERTY_OF[DELAY_LEVEL]] = str(row[DELAY_LEVEL])
        if row.get(DELIVER_AT) is not None:
            properties[PROPERTY_OF[DELIVER_AT]] = str(int(row[DELIVER_AT].timestamp() * 1000))
        if row.get("key"):
            properties["KEYS"] = _text(row["key"])
        body = row["value"].encode() if isinstance(row["value"], str) else row["value"]
        if not body:
            raise RowError(f"delayed row {number} of its batch, column value: null or empty")
        message = compose_message(topic or row["topic"], body, tags=row.get("tags"), properties=properties)
        yield prepare_message(message, keys.next_key, now_ms(), BodyRules(compression=None))


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
