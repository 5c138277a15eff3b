"""Messages of a queue in pages, for commands that read topics of the broker itself."""

from __future__ import annotations

from ringmq.cli.admin import TIMEOUT_MS
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.remoting.client_headers import PullMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import PullSysFlag

PULL_COUNT = 256
TOOLS_GROUP = "TOOLS_CONSUMER"


async def pull_page(
    client: RemotingClient, address: str, topic: str, offset: int, queue_id: int = 0
) -> RemotingCommand:
    """Pull at most PULL_COUNT messages of any tag from a queue, and wait for none."""
    header = PullMessageRequestHeader(
        consumer_group=TOOLS_GROUP, topic=topic, queue_id=queue_id, queue_offset=offset, max_msg_nums=PULL_COUNT,
        sys_flag=int(PullSysFlag.SUBSCRIPTION), commit_offset=0, suspend_timeout_millis=0, subscription="*",
        sub_version=0, expression_type="TAG",
    )  # fmt: skip
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header.encode())
    return await client.invoke(address, request, TIMEOUT_MS)
