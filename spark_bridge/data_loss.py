"""Reaction to data that cannot be read: an error, or with failOnDataLoss=false one warning."""

import logging

from ringmq.spark_bridge.errors import DataLossError, ReadError

log = logging.getLogger("ringmq.spark_bridge")


class DataLossPolicy:
    """The policy of one slice."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._has_warned = False

    def report(self, error: ReadError | DataLossError) -> None:
        """Raise the error, or log the first one of a slice."""
        if self._fail:
            raise error
        if not self._has_warned:
            log.warning("%s; skipped (failOnDataLoss=false), and further ones of this task are not logged", error)
            self._has_warned = True
