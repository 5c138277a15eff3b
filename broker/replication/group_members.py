"""The brokers of a group that a name server knows (901)."""

from __future__ import annotations

from ringmq.ha.broker_client import PORT_CHARS_MAX, PORT_MAX
from ringmq.ha.tenure_messages import Group
from ringmq.remoting import json_body
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.namesrv_headers import GetBrokerMemberGroupRequestHeader
from ringmq.remoting.route import BrokerData
from ringmq.store.tenure_file import ADDRESS_CHARS_MAX, PEERS_MAX


def members_request(group: Group) -> RemotingCommand:
    """The request to a name server."""
    header = GetBrokerMemberGroupRequestHeader(cluster_name=group.cluster, broker_name=group.broker_name)
    return RemotingCommand.request(RequestCode.GET_BROKER_MEMBER_GROUP, header.encode())


def members_of(body: bytes) -> dict[int, str]:
    """Return the broker ports by brokerId, at most PEERS_MAX of the lowest ids. Raises `BadBody`.

    Any host that may register names members, so an address that the tenure file could not keep is left out.
    """
    value = json_body.mapping(json_body.read_object(body, "BrokerMemberGroup"), "brokerMemberGroup")
    found = BrokerData.from_json(value).broker_addrs
    usable = sorted(broker_id for broker_id, address in found.items() if _is_address(address))
    return {broker_id: found[broker_id] for broker_id in usable[:PEERS_MAX]}


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= PORT_CHARS_MAX and 0 < int(port) <= PORT_MAX
    return bool(host) and is_port and len(text) <= ADDRESS_CHARS_MAX
