"""Properties that the workers read in shared memory and that may change while they run.

The start writes them with all other settings. Control writes them again after request 25 has changed one. Each is one
word, and the workers read it at each use.
"""

from __future__ import annotations

from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig, property_table
from ringmq.ipc.logs import level_number

WORDS = {
    "long_polling_enable": "longPollingEnable",
    "short_polling_ms": "shortPollingTimeMills",
    "pull_memory_bytes_max": "maxTransferBytesOnMessageInMemory",
    "pull_memory_count_max": "maxTransferCountOnMessageInMemory",
    "pull_disk_bytes_max": "maxTransferBytesOnMessageInDisk",
    "pull_disk_count_max": "maxTransferCountOnMessageInDisk",
    "lite_pull_enable": "litePullMessageEnable",
    "property_filter_enable": "enablePropertyFilter",
    "filter_support_retry": "filterSupportRetry",
    "slave_read_enable": "slaveReadEnable",
    "offset_check_in_slave": "offsetCheckInSlave",
    "sync_flush_timeout_ms": "syncFlushTimeout",
    "flush_interval_ms": "flushIntervalCommitLog",
    "flush_least_pages": "flushCommitLogLeastPages",
    "flush_thorough_interval_ms": "flushCommitLogThoroughInterval",
    "slow_request_ms": "ringmqSlowRequestMs",
}
"""Word of struct rmq_settings -> live property."""


def show_live(settings: Any, config: BrokerConfig) -> None:
    """Write the words, and that of logLevel; `settings` is struct rmq_settings of the plane."""
    table = property_table()
    settings.log_level = level_number(config.log_level)
    for word, name in WORDS.items():
        setattr(settings, word, int(getattr(config, table[name][0])))
    settings.config_version += 1
