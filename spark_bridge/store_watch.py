"""Detection of a broker's store that was made again: a stream that runs for months may meet one."""

import os
from collections.abc import Iterable
from pathlib import Path

from ringmq.spark_bridge.slice_reader import store_here
from ringmq.spark_bridge.slices import BrokerLocation, StoreLocation
from ringmq.store import layout


class StoreWatch:
    """Remembers the store of each broker.

    The folder of a log on this host stays open, so no later folder gets its inode.
    """

    def __init__(self) -> None:
        self._stores: dict[str, StoreLocation] = {}
        self._folders: dict[str, int] = {}

    def renewed(self, places: Iterable[BrokerLocation]) -> set[str]:
        """The brokers whose store is another one than when they were seen last. One that does not say which it is (a
        stock broker) is not known."""
        found = set()
        for place in places:
            if place.store is None:
                continue
            before = self._stores.get(place.name)
            if before is not None and not _is_same(before, place.store):
                found.add(place.name)
            if before != place.store:
                self._stores[place.name] = place.store
                self._hold(place.name, place.store)
        return found

    def close(self) -> None:
        """Close the folders."""
        while self._folders:
            os.close(self._folders.popitem()[1])

    def _hold(self, broker: str, store: StoreLocation) -> None:
        folder = self._folders.pop(broker, None)
        if folder is not None:
            os.close(folder)
        if store_here(store):
            try:
                self._folders[broker] = os.open(Path(store.root) / layout.COMMIT_LOG, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:  # of another user: told apart by the inode alone
                return


def _is_same(before: StoreLocation, now: StoreLocation) -> bool:
    """Device numbers may change with a boot of the host."""
    same_boot = before.boot_id == now.boot_id
    return before.inode == now.inode and (before.device == now.device or not same_boot)
