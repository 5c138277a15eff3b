"""C chooses the messages of an answer as its twin does, over random queues and requests."""

import random
from pathlib import Path

import pytest
from desk_stage import CHANGE, Answer, Stage, receipts

from ringmq.native import lib
from ringmq.pop.desk_twin import NORMAL, RETRY_V1, RETRY_V2, Message, Settings, TwinAnswer, TwinDesk, TwinQueue

TOPICS = {NORMAL: "T", RETRY_V1: "%RETRY%G_T", RETRY_V2: "%RETRY%G+T"}
TAGS = ("a", "b", "")


class Pair:
    """A desk and its twin over the same queues."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        v1, v2 = rng.choice([(True, False), (False, True), (True, True)])
        settings = Settings(rng.choice([0, 20, 100]), v1, v2, bytes_max=rng.choice([262_144, 9000]))
        self.rng = rng
        self.stage = Stage(
            root, pop_from_retry_probability=settings.retry_percent, enable_retry_topic_v2=v2,
            retrieve_message_from_pop_retry_topic_v1=v1,
        )  # fmt: skip
        self.stage.kit.header.settings.pull_memory_bytes_max = settings.bytes_max
        self.stage.group("G")
        self.stage.group("O")
        queues = {NORMAL: rng.randrange(1, 5), RETRY_V1: rng.randrange(2), RETRY_V2: rng.randrange(3)}
        self.queues: dict[int, list[TwinQueue]] = {}
        for flag, count in queues.items():
            if count:
                self.stage.topic(TOPICS[flag], count)
            self.queues[flag] = [TwinQueue() for _ in range(count)]
        self.orderly = [TwinQueue(messages=queue.messages) for queue in self.queues[NORMAL]]
        """The same queues, as an orderly group sees them."""
        for _ in range(20):
            self.stage.pop()
            self.stage.pop(group="O")  # a pop that lacks a window begins again, with another choice
        state = self.stage.desk.native.struct.random
        self.twin = TwinDesk(self.queues, settings, state)
        self.open: list[tuple[Answer, TwinAnswer]] = []
        self.told: set[str] = set()
        self.batches: dict[tuple[int, int], str] = {}
        """Receipts of the orderly group, by queue and offset."""
        self.over: set[tuple[int, int, str]] = set()
        """Messages whose time is over, with their receipts."""

    def send(self) -> None:
        flag = self.rng.choice([flag for flag, queues in self.queues.items() if queues])
        number = self.rng.randrange(len(self.queues[flag]))
        for _ in range(self.rng.randrange(1, 12)):
            tag, body = self.rng.choice(TAGS), b"x" * self.rng.choice([3, 40, 2000])
            properties = b"TAGS\x01%s\x02" % tag.encode() if tag else b""
            before = int(self.stage.kit.marks.append_offset)
            self.stage.send(TOPICS[flag], 1, number, bodies=[body], properties=properties)
            size = int(self.stage.kit.marks.append_offset) - before
            self.queues[flag][number].messages.append(Message(size, tag))

    def retain(self) -> None:
        """Retention takes some messages of a queue."""
        flag = self.rng.choice([flag for flag, queues in self.queues.items() if queues])
        number = self.rng.randrange(len(self.queues[flag]))
        queue = self.queues[flag][number]
        if queue.messages:
            queue.first = min(len(queue.messages) - 1, queue.first + self.rng.randrange(3))
            if flag == NORMAL:
                self.orderly[number].first = queue.first
            topic_id = self.stage.plane.topic_find(TOPICS[flag])
            assert topic_id is not None
            self.stage.kit.queue(topic_id, number).min_offset = queue.first

    def pop(self) -> None:
        wanted = self.rng.choice([1, 2, 5, 32])
        queue_id = self.rng.choice([-1, -1, self.rng.randrange(len(self.queues[NORMAL]))])
        tags = self.rng.choice([None, None, frozenset("a"), frozenset("ab")])
        expected = self.twin.pop(wanted, queue_id, tags)
        answer = self.stage.pop(maxMsgNums=wanted, queueId=queue_id, exp="||".join(sorted(tags)) if tags else "*")
        assert answer.code == (0 if expected.picks else 210)
        assert answer.fields["startOffsetInfo"] == expected.starts
        assert answer.fields["msgOffsetInfo"] == expected.offsets
        assert answer.fields["restNum"] == str(expected.rest)
        if expected.picks:
            self.open.append((answer, expected))

    def notification(self) -> None:
        queue_id = self.rng.choice([-1, self.rng.randrange(len(self.queues[NORMAL]))])
        answer = self.stage.notification(queueId=queue_id)
        assert answer.fields["hasMsg"] == str(self.twin.has_message(queue_id)).lower()
        self.told.add(answer.fields["hasMsg"])
        attempt = self.rng.choice(["", "a1", "a2"])
        answer = self.stage.notification(group="O", order="true", attemptId=attempt)
        assert answer.fields["hasMsg"] == str(self.twin.has_batch(self.orderly, attempt)).lower()
        self.told.add(answer.fields["hasMsg"])

    def pop_in_order(self) -> None:
        wanted, attempt = self.rng.choice([1, 2, 5, 32]), self.rng.choice(["", "a1", "a2"])
        expected = self.twin.pop_in_order(self.orderly, wanted, attempt)
        answer = self.stage.pop(group="O", maxMsgNums=wanted, order="true", attemptId=attempt)
        assert answer.code == (0 if expected.picks else 210)
        assert answer.fields["startOffsetInfo"] == expected.starts
        assert answer.fields["msgOffsetInfo"] == expected.offsets
        assert answer.fields["orderCountInfo"] == expected.orders
        assert answer.fields["restNum"] == str(expected.rest)
        for receipt in receipts(answer) if expected.picks else ():
            queue_id, offset = map(int, receipt.split(" ")[6:])
            self.batches[queue_id, offset] = receipt

    def end_batch(self) -> None:
        """Acknowledge some messages of a batch, or let their time be over."""
        number = self.rng.randrange(len(self.orderly))
        queue, is_acked = self.orderly[number], self.rng.random() < 0.5
        for offset in self.rng.sample(queue.open, len(queue.open) if self.rng.random() < 0.7 else len(queue.open) // 2):
            if offset < queue.next_offset:
                continue
            receipt = self.batches[number, offset]
            if is_acked:
                answer = self.stage.ack(receipt, group="O")
                assert answer.code == (208 if offset < queue.first else 0)
                if not answer.code:
                    queue.ack(offset)
            elif offset >= queue.first:
                self.stage.ack(receipt, group="O", code=CHANGE, invisibleTime=0)
                self.over.add((number, offset, receipt))
        queue.is_over = all((number, offset, self.batches[number, offset]) in self.over for offset in queue.open)

    def unsent(self) -> None:
        if self.open:
            answer, expected = self.open.pop(self.rng.randrange(len(self.open)))
            self.stage.desk.native.unsent(answer.verdict.serial)
            self.twin.unsent(expected)

    def ack(self) -> None:
        if self.open:
            answer, _ = self.open.pop(0)
            for receipt in receipts(answer):
                topic = TOPICS[int(receipt.split(" ")[4])]
                assert self.stage.ack(receipt, topic=topic).code in (0, 208)


@pytest.mark.parametrize("seed", range(5))
def test_c_chooses_as_the_twin_does(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(tmp_path / "store", rng)
    for _ in range(4):
        pair.send()
    for _ in range(120):
        acts = [
            pair.pop, pair.notification, pair.send, pair.unsent, pair.ack, pair.retain, pair.pop_in_order,
            pair.end_batch,
        ]  # fmt: skip
        rng.choices(acts, [12, 6, 3, 3, 3, 1, 6, 6])[0]()
    assert pair.told == {"true", "false"}
    assert pair.stage.desk.native.struct.trouble_error == 0
    assert lib.rmq_pop_entries_free(pair.stage.windows) > 0
