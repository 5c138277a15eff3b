"""Requests to a cluster over connections that stay open: a stream sends some at each of its triggers."""

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from ringmq.client import RingmqError
from ringmq.client.blocking import Cluster
from ringmq.spark_bridge.errors import ReadError

T = TypeVar("T")


class PersistentCluster:
    """The cluster behind the name servers `bootstrap`. Its thread and its connections end with this object."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._cluster: Cluster | None = None

    def ask(self, what: str, question: Callable[[Cluster], T]) -> T:
        """Return the answer to `question`, repeated over new connections if the old ones fail.

        Raises `ReadError` naming `what` was requested.
        """
        kept = self._cluster
        try:
            if kept is not None:
                try:
                    return question(kept)
                except RingmqError:
                    self.close()
            return question(self._open())
        except RingmqError as error:
            self.close()
            raise ReadError(f"bootstrap {self._bootstrap}: no answer about {what}: {error}") from error

    def close(self) -> None:
        """Close the connections. The next request makes new ones."""
        if self._cluster is not None:
            self._at_end.detach()
            cluster, self._cluster = self._cluster, None
            cluster.close()

    def _open(self) -> Cluster:
        cluster = Cluster(self._bootstrap)
        cluster.start()
        self._cluster = cluster
        self._at_end = weakref.finalize(self, _close_beside, cluster)
        self._at_end.atexit = False  # a process that ends closes everything itself
        return cluster


def _close_beside(cluster: Cluster) -> None:
    """Close in a new thread: objects are collected in any thread, and the cluster's own cannot wait for itself."""
    threading.Thread(target=cluster.close, name="ringmq cluster ends", daemon=True).start()
