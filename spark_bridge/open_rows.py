"""The choice between the implementations of `Rows`, each imported where it is used."""

from ringmq.native import available
from ringmq.spark_bridge.rows import BatchShape, Rows, WantedRows


def open_rows(shape: BatchShape, wanted: WantedRows) -> Rows:
    """Return an empty batch, in the C core if it is installed."""
    if available():
        from ringmq.spark_bridge.native_rows import NativeRows

        return NativeRows(shape, wanted)
    from ringmq.spark_bridge.plain_rows import PlainRows

    return PlainRows(shape, wanted)
