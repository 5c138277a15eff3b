"""Errors of a read. Each message names the event, the file or queue, and the offset."""


class ReadError(RuntimeError):
    """A slice cannot be read: a missing or foreign store, no permission, a broken record, an unreachable broker."""


class BrokerStartingError(ReadError):
    """The owner of a store's files is starting: they can be read in a moment."""


class DataLossError(RuntimeError):
    """Planned rows are gone, by retention or with a recreated store. `failOnDataLoss=false` continues without them."""
