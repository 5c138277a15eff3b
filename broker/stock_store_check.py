"""The check of a store that a stock broker has left: the reasons of a refusal, and the notices."""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import starts_as_slave
from ringmq.store.config import StoreConfig
from ringmq.store.store_format import check_format
from ringmq.store.unsupported import (
    ROCKSDB_TIMERS_FOLDER,
    Unsupported,
    find_unsupported,
    has_rocksdb_timers,
)


class StockStoreError(Exception):
    """The store holds pending work that this broker does not serve. The message lists it and says what to do."""


def stock_store_notices(store: StoreConfig, config: BrokerConfig) -> list[str]:
    """Log lines about pending work that stays in the store. None for a store of ours.

    Raises StockStoreError if the pending work has not been accepted or is in RocksDB, StoreFormatError for a newer
    store. Work in a slave's store is not counted, because its master serves it.
    """
    check_format(store.root)
    if has_rocksdb_timers(store.root):
        raise StockStoreError(refusal_of_rocksdb(str(store.root)))
    if starts_as_slave(config):
        return []
    waiting = find_unsupported(store)
    if waiting and not config.accept_unserved:
        raise StockStoreError(refusal(str(store.root), waiting))
    return [f"left for a stock broker, not served here: {entry}" for entry in waiting]


def refusal(root: str, waiting: Sequence[Unsupported]) -> str:
    """The reason why the store is refused, and the two ways on."""
    lines = "".join(f"\n  - {entry}" for entry in waiting)
    return (
        f"{root}: a stock broker has left work that RingMQ does not serve yet and would not deliver:{lines}\n"
        "Nothing was changed. Let the stock broker deliver it first. Or start with --accept-unserved "
        "(ringmqAcceptUnserved=true): RingMQ serves everything else and leaves this work untouched, and a stock "
        "broker that gets the store back goes on with it"
    )


def refusal_of_rocksdb(root: str) -> str:
    """The reason why a store with timer messages in RocksDB is refused, and the way on."""
    return (
        f"{root}: the folder {ROCKSDB_TIMERS_FOLDER} has timer messages, transactions or the index in RocksDB "
        "(timerRocksDBEnable and others). RingMQ cannot read it and would deliver timer messages again, so it does "
        "not start, with --accept-unserved neither. Nothing was changed. Let the stock broker deliver what waits and "
        "stop it cleanly. Then move the folder out of the store"
    )
