"""Tests of a program that uses RingMQ, with a real broker under them (docs/testing.md).

pytest examples/test_orders.py
"""

from ringmq.client import ConsumeFrom, Message
from ringmq.client.blocking import Consumer, Producer


def place_order(producer: Producer, topic: str, item: str) -> str:
    """The program under test. Returns its order's id."""
    return producer.send(Message(topic, item.encode(), {"TAGS": "order"})).message_id


def test_an_order_can_be_read(ringmq_namesrv: str, ringmq_topic: str, ringmq_group: str) -> None:
    with Producer(ringmq_namesrv) as producer:
        order = place_order(producer, ringmq_topic, "tea")
    with Consumer(ringmq_topic, ringmq_namesrv, ringmq_group, consume_from=ConsumeFrom.FIRST) as consumer:
        (message,) = consumer.poll(timeout_ms=10_000)
    assert (message.msg_id, message.body, message.tags) == (order, b"tea", "order")
