"""Differences of properties from RocketMQ's, and meanings of RingMQ's own."""

from __future__ import annotations

from ringmq.broker.config.broker_config import RETENTION
from ringmq.remoting.properties_reference import DIFFERS, OURS, SAME

NOT_BUILT = "not built yet, so only false"

DIFFERENCES = {
    "bindAddress": "RocketMQ's default is 0.0.0.0",
    "brokerName": "RocketMQ's default is the host's name",
    "storePathRootDir": "RocketMQ's default is $HOME/store",
    "brokerId": "RocketMQ sets another id of a master to 0, RingMQ refuses it",
    "enableSingleTopicRegister": "RocketMQ's default is false; false announces the whole table here",
    "haTransferBatchSize": "RocketMQ accepts up to 4 MiB",
    "enableDLegerCommitLog": NOT_BUILT,
    "authenticationEnabled": NOT_BUILT,
    "authorizationEnabled": NOT_BUILT,
    "aclEnable": NOT_BUILT,
    "enableControllerMode": NOT_BUILT,
    **dict.fromkeys(RETENTION, "live from loopback and adminAddresses alone"),
    "startAcceptSendRequestTimeStamp": "request 25 sets it at most one day ahead",
    "enableScheduleAsyncDeliver": "no effect: many at a time in any case, in the order of each level",
    "transactionOpBatchInterval": "no effect: an op record is stored together with the messages that it lists",
    "timerSkipUnknownError": "true skips timer messages whose queue entry is damaged, with a log line",
    "timerEnableRetryUntilSuccess": "no effect: a message that cannot be stored is tried until it is",
    "timerRollWindowSlot": "at most 3/4 of fileReservedTime, so that records outlive their wait",
    "metricsExporterType": "RocketMQ's default is DISABLE",
    "metricsPromExporterPort": "if 5557 is taken, the broker uses any free port",
    "metricsPromExporterHost": "empty means brokerIP1 in RocketMQ",
    "popConsumerKVServiceEnable": NOT_BUILT,
    "popFromRetryProbability": "RocketMQ accepts any number",
    "popInflightMessageThreshold": "RocketMQ accepts negative numbers, too",
    "popPollingSize": "RocketMQ accepts negative numbers, too",
    "popPollingMapSize": "beyond it further ones do not wait; in RocketMQ the oldest are forgotten",
    "maxPopPollingSize": "at most 65536 wait",
    "reviveQueueNum": "no effect but on numbers in receipts and the queues of the revive topic",
    "storePathCommitLog": "RocketMQ accepts several folders joined by a comma",
}
"""Property of RocketMQ -> difference; a property that is missing here means the same."""

MEANINGS = {
    "adminAddresses": "hosts that may change topics, groups and settings, and adopt",
    "haAllowedNetworks": "hosts of the group's brokers: they may connect for replication",
    "httpAllowedNetworks": "hosts that may connect to the port of /metrics, /health and /ready",
    "logLevel": "lowest level of log lines",
    "logFormat": "form of log lines; json = one object a line",
    "haStartFromNewestFile": "an empty slave starts at the newest file, as in RocketMQ",
    "haStartAlone": "a master that starts while its peers are silent; empty = hold if SYNC_MASTER",
    "haDivergenceRule": "choice in advance when a slave's log is longer or differs",
    "replicationPolicy": "how far a byte must have come to count as replicated",
    "replicaPolicy": "replicas that a send waits for",
    "haRoom": "failure domain for replicaPolicy = rooms",
    "haReplicaRooms": "failure domains of slaves",
    "haAllowedReplicas": "slaves that may connect and count",
    "ringmqSlaveSyncPeriod": "ms between two copies of tables (topics, groups, ...) to a slave",
    "ringmqHaWindowBytes": "bytes that are sent to a slave and not reported by it yet",
    "ringmqSlowRequestMs": "slower sends and control requests get a log line",
    "ringmqAcceptUnserved": "start on a store with messages that RingMQ does not serve yet",
    "ringmqEngine": "the [engine](operating.md#engines); auto = io_uring where it works",
    "ringmqReaders": "read workers; 0 = by the number of CPUs",
    "ringmqConnectionsMax": "connections per read worker",
    "ringmqReceiveBufferBytes": "size of one receive buffer",
    "ringmqReceiveBufferCount": "receive buffers per read worker, a power of two",
    "ringmqReassemblyBytesMax": "memory for incomplete frames, per read worker",
    "ringmqPartialFrameTimeoutMs": "time for a frame; less for slow frames when memory is short",
    "ringmqAnswerBytesMax": "unsent answers of all connections; the largest are closed",
    "ringmqHostConnectionsMax": "connections of one host per read worker; 0 = 15/16 of ringmqConnectionsMax",
    "ringmqSendQueueBytesMax": "unsent answers of a connection before it is closed",
    "ringmqHeldPollsMax": "polls that wait for a service, per read worker",
    "ringmqHeldConnectionPollsMax": "those of one connection",
    "ringmqHeldPollBytesMax": "memory of their requests and answers, per read worker",
    "ringmqSendStallTimeoutMs": "longest time in which a client takes no byte of its answers",
    "ringmqPopulateWindowBytes": "log pages faulted in ahead of appends",
    "ringmqSpinPauses": "spins before a worker sleeps; -1 = by the number of CPUs",
    "ringmqMemoryMax": "memory of all processes, less page cache",
    "ringmqTopicsMax": "entries of the shared topic table",
    "ringmqQueuesMax": "entries of the shared queue table",
    "ringmqGroupsMax": "entries of the shared group table",
    "ringmqSubscriptionsMax": "entries of the shared subscription table",
    "ringmqHeartbeatGroupsMax": "consumer and producer groups of one heartbeat",
    "ringmqHeartbeatSubscriptionsMax": "subscriptions of all groups of one heartbeat",
    "ringmqProducerGroupsMax": "producer groups of all clients",
    "ringmqMembershipsMax": "pairs of a connection and a group in its heartbeats",
    "ringmqLocksMax": "queue locks of all orderly consumers",
    "ringmqClientLocksMax": "queue locks of one connection",
    "ringmqOpenHalvesMax": "open half messages of all producers",
    "ringmqHostOpenHalvesMax": "open half messages of one host",
    "ringmqGroupOpenHalvesMax": "open half messages of one producer group",
    "ringmqPopOpenMax": "entries of open messages, of all groups",
    "ringmqPopReviveGraceMs": "ms behind the invisible time in which an acknowledgement still counts",
    "ringmqPopDeadLetter": "messages that have come again retryMaxTimes times become dead letters",
    "ringmqPopExportAtStop": "a clean stop writes open messages of POP into the log, for RocketMQ",
    "ringmqOffsetsMax": "entries of the shared table of consumer offsets",
}
"""Property of RingMQ -> meaning; RocketMQ has no property of that name."""


def note(name: str) -> str:
    """`ReferenceRow.rocketmq` of the property."""
    if name in MEANINGS:
        return OURS + MEANINGS[name]
    return DIFFERS + DIFFERENCES[name] if name in DIFFERENCES else SAME
