"""The meaning of properties that do not come from RocketMQ, and of those that differ from RocketMQ's."""

from __future__ import annotations

from ringmq.broker.config.broker_config import RETENTION

SAME = "same"
OURS = "RingMQ's own"

DIFFERENCES = {
    "bindAddress": "same name; 0.0.0.0 there",
    "brokerName": "same name; the host's name there",
    "storePathRootDir": "same name; $HOME/store there",
    "brokerId": "same name; a master's other id is made 0 there",
    "enableSingleTopicRegister": "same name; false there, and false announces the whole table here",
    "haTransferBatchSize": "same name; up to 4 MiB there",
    "enablePropertyFilter": "same name; not served here yet, so only false",
    "enableDLegerCommitLog": "same name; not served here yet, so only false",
    "authenticationEnabled": "same name; not served here yet, so only false",
    "authorizationEnabled": "same name; not served here yet, so only false",
    "aclEnable": "same name; not served here yet, so only false",
    "enableControllerMode": "same name; not served here yet, so only false",
    **dict.fromkeys(RETENTION, "same name; live from loopback and networks that adminAddresses names here"),
    "startAcceptSendRequestTimeStamp": "same name; request 25 sets it at most one day ahead here",
    "metricsExporterType": "same name; DISABLE there",
    "metricsPromExporterPort": "same name; where 5557 is taken, any free one here",
    "metricsPromExporterHost": "same name; empty is brokerIP1 there",
    "storePathCommitLog": "same name; several folders joined by , there",
}
"""Property of RocketMQ -> its difference there. Properties that are not here mean the same."""

MEANINGS = {
    "adminAddresses": "hosts that may change topics, groups and settings; adopt is for these and loopback alone",
    "haAllowedNetworks": "hosts that may connect to the replication port; only a named network's log can hold writes",
    "httpAllowedNetworks": "hosts that may connect to the port of /metrics, /health and /ready",
    "haStartFromNewestFile": "what an empty slave gets: the newest log file on (as RocketMQ), or everything",
    "haDivergenceRule": "what a master does with what a slave's log has beyond its own",
    "replicationPolicy": "how far a byte must have come to count as replicated",
    "replicaPolicy": "how many replicas must have it before a send is answered",
    "haRoom": "the failure domain of this broker, for replicaPolicy = rooms",
    "haReplicaRooms": "the failure domains of its slaves",
    "haAllowedReplicas": "which slaves may connect and count",
    "ringmqSlaveSyncPeriod": "how often a slave takes topics, groups and offsets over, in ms",
    "ringmqHaWindowBytes": "sent to a slave and not reported by it yet",
    "ringmqSlowRequestMs": "sends and control's requests that took longer get a line in the log, at most ten a second",
    "ringmqAcceptUnserved": "start on a store in which a stock broker has left what is not served yet (take-over.md)",
    "ringmqReaders": "read workers; 0 = by the number of CPUs",
    "ringmqConnectionsMax": "connections per read worker",
    "ringmqReceiveBufferBytes": "size of one receive buffer",
    "ringmqReceiveBufferCount": "receive buffers per read worker, a power of two",
    "ringmqReassemblyBytesMax": "memory for frames that do not end in their receive buffer, per read worker",
    "ringmqPartialFrameTimeoutMs": "how long a frame may take, or less when it is slow and others need its room",
    "ringmqAnswerBytesMax": "memory of answers that wait to be sent, over all connections; the largest are closed",
    "ringmqHostConnectionsMax": "connections of one host per read worker; 0 = 15/16 of ringmqConnectionsMax",
    "ringmqSendQueueBytesMax": "answers that wait for a slow connection before it is closed",
    "ringmqSendStallTimeoutMs": "how long a connection may take nothing before it is closed",
    "ringmqPopulateWindowBytes": "pages of the log that are faulted in ahead of the append position",
    "ringmqSpinPauses": "spinning before a worker sleeps; -1 = by the number of CPUs",
    "ringmqMemoryMax": "memory of all processes, without page cache; near it new entries are refused",
    "ringmqTopicsMax": "room of the shared topic table",
    "ringmqQueuesMax": "room of the shared queue table",
    "ringmqGroupsMax": "room of the shared group table",
    "ringmqSubscriptionsMax": "room of the shared subscription table",
    "ringmqHeartbeatGroupsMax": "consumer and producer groups of one heartbeat",
    "ringmqHeartbeatSubscriptionsMax": "subscriptions of one heartbeat, over all of its groups",
    "ringmqProducerGroupsMax": "producer groups of all clients",
    "ringmqMembershipsMax": "pairs of a connection and a group that its heartbeats name, of all clients",
    "ringmqLocksMax": "queue locks of all orderly consumers",
    "ringmqClientLocksMax": "queue locks of one client id",
    "ringmqOffsetsMax": "room of the shared table of consumer offsets",
}
"""Property of ours -> its meaning. RocketMQ has no property of that name."""


def note(name: str) -> str:
    """The relation of `name` to RocketMQ."""
    if name in MEANINGS:
        return f"{OURS}: {MEANINGS[name]}"
    return DIFFERENCES.get(name, SAME)
