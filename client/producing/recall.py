"""Recalls of delayed messages by their handles."""

import time

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.errors import RouteError
from ringmq.remoting.client_headers import RecallMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.recall_handle import RecallHandle, decode_handle


def recall_fields(group: str, handle: RecallHandle, text: str) -> dict[str, str]:
    """Return the fields of the request for a handle, whose text is `text`."""
    header = RecallMessageRequestHeader(producer_group=group, topic=handle.topic, recall_handle=text)
    return {**header.encode(), "bname": handle.broker_name}


async def recall_message(client: RemotingClient, routes: RouteTable, group: str, text: str, until: float) -> str:
    """Recall the message of a handle before `until` (monotonic, s). Return its UNIQ_KEY.

    Raises ValueError for a text that is no handle, and RingmqError.
    """
    handle = decode_handle(text)
    address = (await routes.for_sending(handle.topic, until)).master_address(handle.broker_name)
    if address is None:
        raise RouteError(f"broker {handle.broker_name} of topic {handle.topic} is not registered", may_pass=True)
    await client.connection_in_time(address, until, frozenset())
    left_ms = max(1, round(1000 * (until - time.monotonic())))
    fields = recall_fields(group, handle, text)
    answer = await client.call(address, RequestCode.RECALL_MESSAGE, fields, timeout_ms=left_ms)
    return answer.ext_fields.get("msgId", "")
