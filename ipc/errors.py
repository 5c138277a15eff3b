"""Errors of the shared-memory layer that its users handle. No import here needs the C core."""


class PlaneFullError(RuntimeError):
    """A table of the plane is full. The message names the table and its capacity."""
