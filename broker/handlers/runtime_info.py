"""GET_BROKER_RUNTIME_INFO (28): the table behind `clusterList` and `brokerStatus`, under stock's keys.

RingMQ has no thread pools: their queues are empty and their waits 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.replication import ha_status
from ringmq.broker.replication.state import Replication
from ringmq.broker.requests.request import Answer, Request
from ringmq.broker.tables.protocols import PlaneProtocol, StoreProtocol
from ringmq.broker.tables.put_times import PutTimes
from ringmq.broker.tables.stats import BrokerStats
from ringmq.native import lib
from ringmq.remoting.admin_bodies import encode_kv_table
from ringmq.remoting.codes import VERSION_V5_3_3, version_name

RateOf = Callable[[str, str, int, int], float]
"""See `BrokerStats.rate_of`."""
_UNITS = "KMGTPE"
_POOLS = {
    "sendThreadPoolQueueCapacity": 10_000,
    "pullThreadPoolQueueCapacity": 100_000,
    "litePullThreadPoolQueueCapacity": 100_000,
    "queryThreadPoolQueueCapacity": 20_000,
    "ackThreadPoolQueueCapacity": 100_000,
    "EndTransactionThreadPoolQueueCapacity": 100_000,
}
_ZERO_KEYS = (
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "litePullThreadPoolQueueSize",
    "queryThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "EndTransactionQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "timerCongestNum",
    "dispatchMaxBuffer",
)
"""RingMQ has no such queue, lock or buffer. Stock's exporter needs each name. Stock never sets `dispatchMaxBuffer`."""


class RuntimeInfo(Struct, frozen=True):
    """The handler of 28, with the parts that it needs."""

    live: LiveConfig
    identity: Identity
    plane: PlaneProtocol
    store: StoreProtocol
    stats: BrokerStats
    put_times: PutTimes
    replication: Replication
    of_guests: tuple[Callable[[PlaneProtocol, RateOf, int], dict[str, str]], ...] = ()

    def runtime_info(self, request: Request) -> Answer:
        """28."""
        table = dict.fromkeys(_ZERO_KEYS, "0")
        table |= {name: str(capacity) for name, capacity in _POOLS.items()}
        table |= self._identity(request.now_ms) | self._traffic() | self._times() | self._log()
        for rows in self.of_guests:
            table |= rows(self.plane, self.stats.rate_of, request.now_ms)
        table |= self._replication()
        folder = self.identity.store_folder
        return request.reply(ext_fields=None if folder is None else folder.encode(), body=encode_kv_table(table))

    def _identity(self, now_ms: int) -> dict[str, str]:
        return {
            "bootTimestamp": str(self.identity.started_ms),
            "runtime": format_runtime(now_ms - self.identity.started_ms),
            "brokerActive": "true",
            "brokerVersion": str(VERSION_V5_3_3),
            "brokerVersionDesc": version_name(VERSION_V5_3_3),
            "startAcceptSendRequestTimeStamp": str(self.live.config.start_accept_send_request_time_stamp),
            "remainTransientStoreBufferNumbs": str((1 << 31) - 1),
        }

    def _traffic(self) -> dict[str, str]:
        stats = self.stats
        totals, today, yesterday = stats.totals, stats.today_morning, stats.yesterday_morning
        average = totals.put_bytes / totals.put_messages if totals.put_messages else 0.0
        return {
            "putTps": stats.tps("put_messages"),
            "getTransferredTps": stats.tps("got_messages"),
            "getFoundTps": stats.tps("found"),
            "getMissTps": stats.tps("missed"),
            "getTotalTps": stats.tps("found", "missed"),
            "putMessageTimesTotal": str(totals.put_messages),
            "putMessageSizeTotal": str(totals.put_bytes),
            "putMessageFailedTimes": str(totals.put_refused),
            "putMessageAverageSize": str(average),
            "msgPutTotalTodayNow": str(totals.put_messages),
            "msgPutTotalTodayMorning": str(today.put_messages),
            "msgPutTotalYesterdayMorning": str(yesterday.put_messages),
            "msgGetTotalTodayNow": str(totals.got_messages),
            "msgGetTotalTodayMorning": str(today.got_messages),
            "msgGetTotalYesterdayMorning": str(yesterday.got_messages),
        }

    def _times(self) -> dict[str, str]:
        minute = self.put_times.minute()
        rounds = (self.plane.role(reader.role).counters[lib.RMQ_READ_PULL_NS_MAX] for reader in self.plane.readers)
        return {
            "putMessageDistributeTime": minute.distribution(),
            "putLatency99": f"{minute.percentile_ms(0.99):.2f}",
            "putLatency999": f"{minute.percentile_ms(0.999):.2f}",
            "putMessageEntireTimeMax": str(self.put_times.max_ms()),
            "getMessageEntireTimeMax": str(max(map(int, rounds), default=0) // 1_000_000),
        }

    def _replication(self) -> dict[str, str]:
        """RingMQ's own keys. Stock's tools also print unknown keys."""
        now = ha_status.status(self.live, self.replication)
        table = {
            "haRole": now.role,
            "haReplicationState": now.replication_state,
            "haInSyncReplicas": str(now.in_sync_replicas),
            "haWantedReplicas": str(now.wanted_replicas),
            "haDegraded": str(now.is_degraded).lower(),
            "haWriteHold": now.write_hold,
            "haReplicatedOffset": str(now.replicated_offset),
            "haSendsRefused": str(self.stats.totals.too_few_replicas),
            "haSendsSlaveNotAvailable": str(self.stats.totals.slave_not_available),
            "haSendsFlushSlaveTimeout": str(self.stats.totals.flush_slave_timeout),
            "haDegradedEntered": str(self.stats.totals.degraded_entered),
        }
        for slave in now.slaves:
            table[f"haSlaveLagBytes_{slave.address}"] = str(slave.lag_bytes)
        if now.master is not None:
            table |= {"haMasterState": now.master.state, "haLagBytes": str(now.master.lag_bytes)}
        return table

    def _log(self) -> dict[str, str]:
        log = self.store.log_state()
        ratio = str(round(log.disk_ratio, 2))
        return {
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.confirm_offset),
            "dispatchBehindBytes": str(max(0, log.confirm_offset - log.dispatched_offset)),
            "remainHowManyDataToFlush": format_bytes(max(0, log.append_offset - log.flushed_offset)),
            "earliestMessageTimeStamp": str(self.store.earliest_store_time()),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{log.commit_log_path}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": (
                f"Total : {format_bytes(log.disk_total_bytes)}, Free : {format_bytes(log.disk_free_bytes)}."
            ),
        }


def format_runtime(elapsed_ms: int) -> str:
    """The time since the start in stock's format."""
    seconds = max(0, elapsed_ms) // 1000
    days, rest = divmod(seconds, 86_400)
    clock = time.gmtime(rest)
    return f"[ {days} days, {clock.tm_hour} hours, {clock.tm_min} minutes, {clock.tm_sec} seconds ]"


def format_bytes(count: int) -> str:
    """A size in stock's format: powers of 1024, one decimal."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}iB"
