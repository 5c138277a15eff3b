"""Replies of consumers: every case of the decision, and the request that the requester gets, as stock's."""

from dataclasses import replace

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.native import lib
from ringmq.remoting.client_headers import SendMessageRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import decode_frame
from ringmq.remoting.properties import decode_properties, encode_properties
from ringmq.remoting.request_headers import decode_send_header
from ringmq.services.replies.cases import Asked, Deliver, Refuse, decide
from ringmq.services.replies.push import push_frame
from ringmq.services.topics import Topic
from tests.remoting.scenes import BOTH, exchanges

NAME = "C_REPLY_TOPIC"
CONFIG = changed(BrokerConfig(), {"brokerClusterName": "C", "maxMessageSize": "1024"})
TOPIC = Topic(NAME, 7, 6, 4, 2, lib.RMQ_TOPIC_LIVE)
PAIRS = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": "c1", "CORRELATION_ID": "x"}
OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
HEADER = SendMessageRequestHeader(
    producer_group="PG", topic=NAME, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
    born_timestamp=1, flag=0, properties=encode_properties(PAIRS),
)  # fmt: skip
NOW = 1_700_000_000_000


LATE = changed(CONFIG, {"startAcceptSendRequestTimeStamp": str(NOW + 1)})


def decided(
    header: SendMessageRequestHeader = HEADER,
    topic: Topic | None = TOPIC,
    config: BrokerConfig = CONFIG,
    body_bytes: int = 5,
) -> Refuse | Deliver:
    return decide(Asked(header, body_bytes, "10.0.0.1:5"), config, topic, NOW, lambda count: count - 1)


def with_pairs(**pairs: str) -> SendMessageRequestHeader:
    return replace(HEADER, properties=encode_properties({**PAIRS, **pairs}))


ROOM = 32767 - len(encode_properties({**PAIRS, **OWN, "k": ""}))


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (decided(topic=None, config=LATE), ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {NOW + 1}"),
        (decided(replace(HEADER, topic="a b_REPLY_TOPIC"), None), ResponseCode.INVALID_PARAMETER, "topic"),
        (decided(replace(HEADER, topic="T"), None), ResponseCode.NO_PERMISSION,
         "Sending message to topic[T] is forbidden: a reply goes to CLUSTER_REPLY_TOPIC."),
        (decided(topic=None), ResponseCode.TOPIC_NOT_EXIST, f"topic[{NAME}] not exist, apply first please!"),
        (decided(replace(HEADER, queue_id=4)), ResponseCode.INVALID_PARAMETER,
         f"request queueId[4] is illegal, TopicConfig [topicName={NAME}, readQueueNums=4, writeQueueNums=2, perm=RW-] "
         "Producer: 10.0.0.1:5"),
        (decided(replace(HEADER, queue_id=-1), TOPIC._replace(write_queues=0)), ResponseCode.SYSTEM_ERROR,
         f"topic[{NAME}] has no write queue to choose from"),
        (decided(body_bytes=0), ResponseCode.SYSTEM_ERROR, "the message body is empty"),
        (decided(body_bytes=1025), ResponseCode.MESSAGE_ILLEGAL, "body: 1025 bytes, limit 1024"),
        (decided(with_pairs(k="v" * (ROOM + 1))), ResponseCode.MESSAGE_ILLEGAL, "32768 bytes, limit 32767"),
        (decided(with_pairs(k="\0")), ResponseCode.MESSAGE_ILLEGAL, "they hold a NUL character"),
    ],
)  # fmt: skip
def test_what_is_refused_in_stocks_order(found: Refuse | Deliver, code: int, words: str) -> None:
    assert isinstance(found, Refuse) and found.code == code and words in found.remark, found


@pytest.mark.parametrize(
    ("found", "queue_id"),
    [
        (decided(), 0),
        (decided(replace(HEADER, queue_id=3)), 3),
        (decided(replace(HEADER, queue_id=-1)), 1),
        (decided(body_bytes=1024), 0),
        (decided(with_pairs(k="v" * ROOM)), 0),
        (decided(topic=TOPIC._replace(perm=0)), 0),
    ],
)
def test_what_is_delivered(found: Refuse | Deliver, queue_id: int) -> None:
    assert isinstance(found, Deliver) and found.queue_id == queue_id
    assert found.client_id == "c1"
    assert list(found.pairs)[-2:] == list(OWN) and PAIRS.items() | OWN.items() <= found.pairs.items()


def test_a_reply_without_a_requester_is_delivered_to_nobody() -> None:
    found = decided(replace(HEADER, properties=None))
    assert isinstance(found, Deliver) and found.client_id is None and found.pairs == OWN


@pytest.mark.parametrize("kind", BOTH)
def test_the_requester_gets_what_stock_pushes(kind: str) -> None:
    of_code = {one.request.code: one.request for one in exchanges(kind, "12-request-reply")}
    reply, stock = (
        of_code[code] for code in (RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    )
    header, theirs = decode_send_header(reply), stock.ext_fields
    topic = TOPIC._replace(name="GoldCluster_REPLY_TOPIC", read_queues=1, write_queues=1)
    asked = Asked(header, len(reply.body), theirs["bornHost"])
    found = decide(asked, BrokerConfig(), topic, NOW)
    assert isinstance(found, Deliver)
    frame = push_frame(asked, found, reply.body, theirs["storeHost"], int(theirs["storeTimestamp"]))
    ours = decode_frame(frame)
    assert (ours.code, ours.is_oneway, ours.body) == (stock.code, False, stock.body)
    pairs, stock_pairs = (decode_properties(fields.pop("properties")) for fields in (ours.ext_fields, theirs))
    assert ours.ext_fields == theirs
    assert pairs.pop("PUSH_REPLY_TIME") == str(theirs["storeTimestamp"]) and stock_pairs.pop("PUSH_REPLY_TIME")
    assert pairs == stock_pairs
