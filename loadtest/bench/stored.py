"""Reads what a broker has: ends of queues, store times, pops that wait, and the numbers of its runtime information."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.remoting.admin_bodies import decode_kv_table
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.flags import PullSysFlag
from ringmq.remoting.message import MessageExt, decode_messages

PULL = 32
TOPICS_OF_A_REQUEST = 1000


def _call(port: int, request: RemotingCommand) -> RemotingCommand:
    async def call() -> RemotingCommand:
        client = RemotingClient()
        try:
            return await client.invoke(f"127.0.0.1:{port}", request, timeout_ms=5000)
        finally:
            await client.close()

    return asyncio.run(call())


def queue_end(port: int, topic: str, queue_id: int = 0) -> int:
    """Return the offset behind the last readable message. 0 without the queue."""
    header = {"topic": topic, "queueId": str(queue_id)}
    answer = _call(port, RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header))
    return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else 0


def polls_waiting(port: int, topic: str, group: str) -> int:
    """Return the number of pops of all queues of a topic that wait. 0 without the topic."""
    header = {"consumerGroup": group, "topic": topic, "queueId": "-1"}
    answer = _call(port, RemotingCommand.request(RequestCode.POLLING_INFO, header))
    return int(answer.ext_fields["pollingNum"]) if answer.code == ResponseCode.SUCCESS else 0


def make_topics(port: int, topics: Sequence[str]) -> None:
    """Make topics of one queue. Raises RuntimeError if the broker refuses them."""
    for first in range(0, len(topics), TOPICS_OF_A_REQUEST):
        names = topics[first : first + TOPICS_OF_A_REQUEST]
        body = {"topicConfigList": [TopicConfig(name, 1, 1).to_json() for name in names]}
        request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {})
        request.body = json.dumps(body).encode()
        answer = _call(port, request)
        if answer.code != ResponseCode.SUCCESS:
            raise RuntimeError(f"{len(names)} topics from {names[0]} on are refused: {answer.code} {answer.remark}")


def change_settings(port: int, settings: Mapping[str, str]) -> None:
    """Change settings of a running broker. Raises RuntimeError if it refuses them."""
    request = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, {})
    request.body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
    answer = _call(port, request)
    if answer.code != ResponseCode.SUCCESS:
        raise RuntimeError(f"{dict(settings)} are refused: {answer.code} {answer.remark}")


def store_times(port: int, topic: str, queue_id: int, begin: int, end: int) -> list[int]:
    """Return the store times (ms) of the messages [begin, end) of a queue. Fewer if some cannot be read."""
    return times_of(lambda message: message.store_timestamp_ms, port, topic, queue_id, begin, end)


def times_of(
    time_of: Callable[[MessageExt], int], port: int, topic: str, queue_id: int, begin: int, end: int
) -> list[int]:
    """Return what `time_of` gives for the messages [begin, end) of a queue. Fewer if some cannot be read."""
    return asyncio.run(_times_of(time_of, f"127.0.0.1:{port}", topic, queue_id, begin, end))


async def _times_of(
    time_of: Callable[[MessageExt], int], address: str, topic: str, queue_id: int, begin: int, end: int
) -> list[int]:
    client = RemotingClient()
    times: list[int] = []
    try:
        while begin + len(times) < end:
            header = {
                "consumerGroup": "bench", "topic": topic, "queueId": str(queue_id),
                "queueOffset": str(begin + len(times)), "maxMsgNums": str(min(PULL, end - begin - len(times))),
                "sysFlag": str(int(PullSysFlag.SUBSCRIPTION)), "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": "*", "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            answer = await client.invoke(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header))
            if answer.code != ResponseCode.SUCCESS:
                break
            times += [time_of(message) for message in decode_messages(answer.body)]
    finally:
        await client.close()
    return times


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until the condition holds, at most `timeout_s`. Returns whether it holds."""
    deadline = time.monotonic() + timeout_s
    while not (done := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)  # poll
    return done


def runtime_info(port: int) -> Mapping[str, str]:
    """Return the broker's runtime information, under stock's keys."""
    return decode_kv_table(_call(port, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO, {})).body)
