"""The name server's properties as rows of the reference page (`ringmq config reference`)."""

from __future__ import annotations

from ringmq.namesrv.config import BLACK_LIST, NamesrvConfig, accepted_text, kind_of, setting_fields
from ringmq.remoting.properties_reference import DIFFERS, OURS, SAME, ReferenceRow

_NOTES = {
    "bindAddress": DIFFERS + "RocketMQ's default is 0.0.0.0",
    "kvConfigPath": DIFFERS + "RocketMQ's default is a file in $HOME/namesrv; empty here means memory only",
    "adminAddresses": OURS + "hosts that may change KV, permissions and settings, and unregister others' brokers",
    "brokerAddresses": OURS + "hosts that may register and unregister brokers",
    "logLevel": OURS + "lowest level of log lines",
    "logFormat": OURS + "form of log lines; json = one object a line",
    "ringmqMaxFrameBytes": OURS + "the largest request",
    "ringmqMaxConnections": OURS + "connections at a time",
    "ringmqMaxBufferedBytes": OURS + "memory for waiting requests and answers of all connections",
    "ringmqMaxBrokers": OURS + "addresses of brokers; at most half for one host",
    "ringmqMaxTopics": OURS + "topics; at most half from one host's brokers",
    "ringmqMaxQueueDatas": OURS + "pairs of a topic and a broker name; at most half from one host's brokers",
    "ringmqMaxKvEntries": OURS + "keys and namespaces of the KV configuration",
    "ringmqMaxKvBytes": OURS + "text of the KV configuration",
}


def rows() -> list[ReferenceRow]:
    """Return one row per property, in the table's order."""
    defaults = NamesrvConfig().to_properties()
    return [
        ReferenceRow(
            name, kind_of(field), defaults[name], accepted_text(field), name not in BLACK_LIST, _NOTES.get(name, SAME)
        )
        for name, field in setting_fields().items()
    ]
