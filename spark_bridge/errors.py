"""What a read can end with. Each message says what happened, in which file or queue and at which offset."""


class ReadError(RuntimeError):
    """A slice cannot be read: a missing or foreign store, no permission, a broken record, no way to the broker."""


class BrokerStartingError(ReadError):
    """The owner of a store's files is starting: they can be read in a moment."""


class DataLossError(RuntimeError):
    """Rows that were planned are gone: retention or a recreated store took them. `failOnDataLoss=false` goes on without
    them."""
