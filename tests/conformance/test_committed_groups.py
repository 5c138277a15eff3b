"""A group that a program makes by commits alone, as option commitGroup of Spark streams does: consoles show it."""

import asyncio

from ringmq.client import MessageQueue
from ringmq.client.consuming.offset_committer import OffsetCommitter
from tests.conformance.servers import BROKER_NAME, Server
from tests.conformance.stock_client import StockClient
from tests.waiting import wait_until

TOPIC, GROUP = "OnlyCommitted", "OnlyCommits"


async def commit(namesrv: str, offset: int) -> None:
    committer = OffsetCommitter(namesrv, GROUP)
    try:
        await committer.commit({MessageQueue(TOPIC, BROKER_NAME, queue): offset for queue in range(2)})
    finally:
        await committer.close()


def test_mqadmin_shows_the_progress_of_a_group_of_commits_alone(server: Server, stock_client: StockClient) -> None:
    def mqadmin(command: str) -> str:
        printed = stock_client.call("mqadmin", server.namesrv, command=[*command.split(), "-n", server.namesrv])
        return str(printed)

    mqadmin(f"updateTopic -b {server.broker} -t {TOPIC} -r 2 -w 2")
    wait_until(lambda: BROKER_NAME in mqadmin(f"topicRoute -t {TOPIC}"), "the name server knows the topic")
    asyncio.run(commit(server.namesrv, 0))
    printed = mqadmin(f"consumerProgress -g {GROUP}")
    assert "CODE: 17" not in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(TOPIC)]
    assert [row[:5] for row in rows] == [[TOPIC, BROKER_NAME, str(queue), "0", "0"] for queue in range(2)], printed
