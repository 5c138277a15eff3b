"""Errors of a write. Each message names the option, column, row or topic, and the remedy."""


class SchemaError(ValueError):
    """Rows of this schema cannot be written. The message names the column and its accepted types."""


class RowError(ValueError):
    """A row cannot become a message. The message names row, column and limit."""


class WriteError(RuntimeError):
    """The brokers cannot carry out the write, or did not do it safely."""
