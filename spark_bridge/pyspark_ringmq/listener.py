"""Spark's side of `ringmq.spark_bridge.lag`."""

import json
import logging

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ringmq.spark_bridge.lag import Publish, StreamLag, lag_of_progress

_log = logging.getLogger("ringmq.spark_bridge")


class LagListener(StreamingQueryListener):
    """Passes the lag after each batch to `publish`. `latest` holds the newest of each running query."""

    def __init__(self, publish: Publish, group: str | None) -> None:
        self._publish = publish
        self._group = group
        self._names: dict[str, str] = {}
        self.latest: dict[str, StreamLag] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a started query has no lag yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Publish the lag after a batch, or after a time without one.

        Errors of `publish` are logged: the query goes on.
        """
        lag = lag_of_progress(json.loads(event.progress.json), self._group)
        if lag is None:
            return
        self.latest[lag.query] = lag
        self._names[str(event.progress.id)] = lag.query
        try:
            self._publish(lag)
        except Exception:
            _log.exception("the lag of query %s was not published", lag.query)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the last lag still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove the lag of a query that has ended."""
        self.latest.pop(self._names.pop(str(event.id), ""), None)
