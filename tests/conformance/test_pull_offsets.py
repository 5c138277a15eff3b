"""The pull offset of a group (GET_CONSUME_STATS 208, pullOffset): the same answers by both brokers."""

import json
import uuid

from tests.conformance.servers import Server
from tests.raw_client import PULL, RawClient, pull_fields
from tests.waiting import wait_until

UPDATE_CONSUMER_OFFSET, UPDATE_AND_CREATE_TOPIC, GET_CONSUME_STATS = 15, 17, 208
SUSPEND = 2
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


def progress(broker: RawClient, group: str, topic: str) -> tuple[int, int, int]:
    """(brokerOffset, consumerOffset, pullOffset) of the topic's one queue."""
    body = broker.ask(GET_CONSUME_STATS, {"consumerGroup": group, "topic": topic}).body.decode()
    entry = json.loads(body[body.index("}:{") + 2 : body.index("}", body.index("}:{") + 3) + 1])
    return entry["brokerOffset"], entry["consumerOffset"], entry["pullOffset"]


def test_the_next_offset_of_each_pull_counts_where_it_is_ahead(server: Server) -> None:
    group, topic = f"Pulled{uuid.uuid4().hex[:8]}", f"PulledTopic{uuid.uuid4().hex[:8]}"
    with RawClient(server.broker) as broker:
        fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": False}
        answer = broker.ask(UPDATE_AND_CREATE_TOPIC, {"topic": topic, "defaultTopic": "TBW102", **fields})
        assert answer.code == 0, answer.remark
        for number in range(10):
            assert broker.send(topic, b"%d" % number, pairs={"TAGS": "a"}).code == 0

        def pull(offset: int, **more: object) -> int:
            return broker.ask(PULL, pull_fields(topic, 0, offset, consumerGroup=group, **more)).code

        wait_until(lambda: progress(broker, group, topic)[0] == 10, "the queue has all messages")
        assert pull(0, maxMsgNums=6) == FOUND
        assert progress(broker, group, topic) == (10, 0, 6)
        assert pull(6, subscription="other") == RETRY
        assert progress(broker, group, topic) == (10, 0, 10)
        assert pull(2, maxMsgNums=3) == FOUND
        assert progress(broker, group, topic) == (10, 0, 5), "the latest pull counts, not the farthest"
        committed = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 8}
        assert broker.ask(UPDATE_CONSUMER_OFFSET, committed).code == 0
        assert progress(broker, group, topic) == (10, 8, 8)
        assert pull(10) == NOT_FOUND
        assert progress(broker, group, topic) == (10, 8, 10)
        assert pull(4, maxMsgNums=5) == FOUND
        assert pull(50) == MOVED
        assert progress(broker, group, topic) == (10, 8, 10)
        assert pull(4, maxMsgNums=5) == FOUND
        with RawClient(server.broker) as held:
            waiting = pull_fields(topic, 0, 10, consumerGroup=group, sysFlag=SUSPEND | 4, suspendTimeoutMillis=60_000)
            held.send_request(PULL, waiting)
            wait_until(lambda: progress(broker, group, topic) == (10, 8, 10), "a held pull counts, too")
