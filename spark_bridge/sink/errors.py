"""What a write can end with. Each message says which option, column, row or topic, and what to do."""


class SchemaError(ValueError):
    """Rows of this schema cannot be written; names the column and what it may be."""


class RowError(ValueError):
    """A row cannot become a message; names row, column and limit."""


class WriteError(RuntimeError):
    """The brokers cannot do what the write asks for, or did not do it safely."""
