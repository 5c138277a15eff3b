"""Properties of stock whose meaning RingMQ has and whose value it has fixed. Request 26 shows them, too.

Boards and tools show them, for example `mqadmin exportConfigs`. RingMQ accepts other values with a notice, as for all
names of stock without an effect. The rest of stock's names have no meaning here, such as sizes of pools of threads and
of buffers of netty, or files of other engines.
"""

from __future__ import annotations

from collections.abc import Mapping

FIXED_VALUES: Mapping[str, str] = {
    "disableConsumeIfConsumerReadSlowly": "false",
    "duplicationEnable": "false",
    "enableConsumeQueueExt": "false",
    "enableDetailStat": "false",
    "enableLmq": "false",
    "enableMultiDispatch": "false",
    "enableRemoteEscape": "false",
    "enableSlaveActingMaster": "false",
    "maxStatsIdleTimeInMinutes": "1500",
    "maxTopicLength": "127",
    "readUnCommitted": "false",
    "rejectPullConsumerEnable": "false",
    "storeType": "default",
    "transientStorePoolEnable": "false",
    "useServerSideResetOffset": "true",
    "useTLS": "false",
    "warmMapedFileEnable": "false",
}
"""Name -> value, as request 26 shows it."""
