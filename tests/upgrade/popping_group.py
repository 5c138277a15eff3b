"""A group with 10,000 open messages of POP: what it holds, what is done, and what an owner of the store has to give."""

import itertools
from collections import Counter

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.message import decode_messages
from tests.conformance.wire import send_fields, shortened
from tests.pop.pop_client import PopClient, Taken
from tests.raw_client import SEND_BATCH, RawClient
from tests.staging import batch_body, make_topic
from tests.waiting import wait_until

TOPIC, GROUP, QUEUES = "Popped", "poppers", 4
RETRIES = f"%RETRY%{GROUP}_{TOPIC}"
OPEN = 10_000
TAKEN, END = 3000, 3200
"""Of each queue: the messages that the group pops, and all messages."""
DONE_FIRST, DONE_EVERY = 250, 11
"""Of each queue: the messages that are acknowledged, up to an offset and then one of so many. 2,500 stay open."""
COME_AGAIN = 100
"""Of each queue: the first open messages, whose time ends. The group holds their copies then."""
ROWS = 100
"""Messages of a send."""
COUNTS = (1, 1, 1, 1, 32)
"""Messages of a pop, in turn."""
LONG_MS, SHORT_MS, POLL_MS = 3_600_000, 300, 3000


def body(queue: int, offset: int) -> bytes:
    """Of the message at this place."""
    return b"%d/%d" % (queue, offset)


def is_done(offset: int) -> bool:
    """True if the message at this offset is acknowledged."""
    return offset < DONE_FIRST or (offset - DONE_FIRST) % DONE_EVERY == DONE_EVERY // 2


class PoppingGroup:
    """The group. It holds the same messages and receipts at each broker that has the store."""

    def __init__(self) -> None:
        self.held: dict[bytes, Taken] = {}
        self._come_again: set[bytes] = set()

    def send(self, address: str, first: int, end: int) -> None:
        """Send each queue its messages of these offsets."""
        with RawClient(address) as client:
            for queue, offset in itertools.product(range(QUEUES), range(first, end, ROWS)):
                rows = [body(queue, offset + row) for row in range(ROWS)]
                fields = shortened(send_fields(TOPIC, queue, {}, batch=True))
                assert client.ask(SEND_BATCH, fields, batch_body(rows)).code == 0

    def take(self, address: str, first: int, end: int) -> None:
        """Pop each queue's messages of these offsets, and acknowledge some of them."""
        client = PopClient(address, GROUP, TOPIC)
        for queue in range(QUEUES):
            counts, offset = itertools.cycle(COUNTS), first
            while offset < end:
                taken = client.pop(min(next(counts), end - offset), LONG_MS, queue, pollTime=POLL_MS)
                assert [one.body for one in taken] == [body(queue, offset + row) for row in range(len(taken))]
                offset += len(taken)
                for one in taken:
                    if is_done(one.offset):
                        assert client.ack(one).code == 0
                    else:
                        self.held[one.body] = one
        client.close()

    def let_come_again(self, address: str) -> None:
        """The time of the first open messages ends, and the group pops their copies."""
        client = PopClient(address, GROUP, TOPIC)
        for queue in range(QUEUES):
            offsets = [offset for offset in range(TAKEN) if not is_done(offset)][:COME_AGAIN]
            self._come_again |= {body(queue, offset) for offset in offsets}
        for one in self._come_again:
            assert client.change(self.held.pop(one), SHORT_MS).code == 0

        def has_all() -> bool:
            taken = client.pop(invisible_ms=LONG_MS, pollTime=POLL_MS)
            assert all(one.flag and one.body in self._come_again for one in taken)
            self.held |= {one.body: one for one in taken}
            return self._come_again <= self.held.keys()

        wait_until(has_all, "the group pops all copies")
        client.close()

    def hold_10_000(self, address: str, first: int = 0) -> None:
        """Take what is left from these offsets on, let some of it come again, and send messages that nobody pops."""
        self.take(address, first, TAKEN)
        self.let_come_again(address)
        self.send(address, TAKEN, END)
        assert len(self.held) == OPEN

    def expected(self) -> Counter[bytes]:
        """The messages that an owner without the memory gives: those from the first open one of each queue on, and
        copies."""
        found = Counter(self._come_again)
        in_topic = self.held.keys() - self._come_again
        for queue in range(QUEUES):
            first = next(offset for offset in range(TAKEN) if body(queue, offset) in in_topic)
            found.update(body(queue, offset) for offset in range(first, END))
        return found


def consumer_offset(address: str, topic: str, queue: int) -> int | None:
    """The group's offset, None without one."""
    fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"}
    with RawClient(address) as client:
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.ext_fields["offset"]) if answer.code == 0 else None


def consume_by_pops(address: str) -> Counter[bytes]:
    """Pop all that the broker gives, and acknowledge it."""
    client = PopClient(address, GROUP, TOPIC)
    taken = client.pop_all(invisible_ms=LONG_MS, pollTime=POLL_MS)
    for one in taken:
        assert client.ack(one).code == 0
    client.close()
    wait_until(lambda: {consumer_offset(address, TOPIC, queue) for queue in range(QUEUES)} == {END}, "all is done")
    return Counter(one.body for one in taken)


def consume_by_pulls(address: str) -> Counter[bytes]:
    """Pull all from the consumer offsets on, also of the topic of retries, and commit it."""
    found: Counter[bytes] = Counter()
    with RawClient(address) as client:
        for topic, queue in [*((TOPIC, queue) for queue in range(QUEUES)), (RETRIES, 0)]:
            offset = consumer_offset(address, topic, queue)
            assert offset is not None, "a consumer would begin at the end"
            while (answer := client.pull(topic, queue, offset)).code == 0:
                messages = decode_messages(answer.body)
                found.update(bytes(message.body) for message in messages)
                offset += len(messages)
            fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue, "commitOffset": offset}
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    return found


def make(address: str) -> PoppingGroup:
    """A group that has popped nothing yet. Its topic has the messages that it will pop."""
    make_topic(address, TOPIC, QUEUES)
    group = PoppingGroup()
    group.send(address, 0, TAKEN)
    return group
