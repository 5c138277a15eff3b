"""The name server's properties as rows of the reference page (`ringmq config reference`)."""

from __future__ import annotations

from ringmq.namesrv.config import BLACK_LIST, NamesrvConfig, accepted_text, kind_of, setting_fields
from ringmq.remoting.properties_reference import ReferenceRow

_NOTES = {
    "bindAddress": "same name; 0.0.0.0 there",
    "kvConfigPath": "same name; a file in $HOME/namesrv there, empty = in memory only here",
    "adminAddresses": "RingMQ's own: hosts that may change KV, permissions, settings and unregister others' brokers",
    "brokerAddresses": "RingMQ's own: hosts that may register and unregister brokers",
    "ringmqMaxFrameBytes": "RingMQ's own: the largest request",
    "ringmqMaxConnections": "RingMQ's own: connections at a time",
    "ringmqMaxBufferedBytes": "RingMQ's own: memory for requests and answers that wait, of all connections",
    "ringmqMaxBrokers": "RingMQ's own: addresses of brokers, one host has at most half",
    "ringmqMaxTopics": "RingMQ's own: topics, one host's brokers bring at most half",
    "ringmqMaxQueueDatas": "RingMQ's own: pairs of a topic and a broker name, one host's brokers bring at most half",
    "ringmqMaxKvEntries": "RingMQ's own: keys and namespaces of the KV configuration",
    "ringmqMaxKvBytes": "RingMQ's own: text of the KV configuration",
}


def rows() -> list[ReferenceRow]:
    """Return one row per property, in the table's order."""
    defaults = NamesrvConfig().to_properties()
    return [
        ReferenceRow(
            name, kind_of(field), defaults[name], accepted_text(field), name not in BLACK_LIST, _NOTES.get(name, "same")
        )
        for name, field in setting_fields().items()
    ]
