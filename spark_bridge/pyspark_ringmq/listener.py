"""Spark's side of `ringmq.spark_bridge.lag`."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

_log = logging.getLogger("ringmq.spark_bridge")


class Lag(Protocol):
    """The lag of one query after one batch."""

    @property
    def query(self) -> str:
        """The query's name."""


L = TypeVar("L", bound=Lag)


class LagListener(StreamingQueryListener, Generic[L]):
    """Passes the lag after each batch to `publish`. `latest` holds the newest of each running query.

    `lag_of` reads it from the query's progress (Spark's JSON), None if the query reads no topics by this source.
    """

    def __init__(self, lag_of: Callable[[Mapping[str, Any]], L | None], publish: Callable[[L], None]) -> None:
        self._lag_of = lag_of
        self._publish = publish
        self._names: dict[str, str] = {}
        self.latest: dict[str, L] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a started query has no lag yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Publish the lag after a batch, or after a time without one.

        Errors of `publish` are logged: the query goes on.
        """
        lag = self._lag_of(json.loads(event.progress.json))
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
