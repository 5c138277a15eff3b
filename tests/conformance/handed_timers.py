"""Timer messages that wait while a store changes hands: the next broker delivers them, once and never early."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages
from ringmq.timer.timer_checkpoint import read_timer_checkpoint
from tests.raw_client import RawClient
from tests.services.late_start import ask_started
from tests.waiting import wait_until

TOPIC = "HandedTimers"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SETTINGS = {"recallMessageEnable": True, "timerRollWindowSlot": 9, "mappedFileSizeTimerLog": 4096}
"""A message that waits for 9 slots or more is rolled. Files of TimerLog have 78 units."""
SPREAD, STEP_MS = 80, 60
"""The last of these waits for 6.3 s: 7 slots, or 8 if its slot begins a moment later."""
ROLLED_MS = 12_000
CHECKPOINT_LAG_MS = 20_000
PRECISION_MS = 1000
BEFORE, RECALLED, ROLLED, AFTER = "before", "recalled", "rolled", "after"


def read(client: RawClient, topic: str) -> list[MessageExt]:
    found: list[MessageExt] = []
    while (answer := client.pull(topic, offset=len(found))).code == ResponseCode.SUCCESS:
        found += decode_messages(answer.body)
    return found


def name_of(message: MessageExt) -> str:
    return bytes(message.body).decode()


def slot_of(message: MessageExt) -> int:
    """The time of the slot that a message waited in: that of its enqueue, if its own was over by then."""
    enqueued_ms = int(message.properties["TIMER_ENQUEUE_MS"])
    return max(int(message.properties["TIMER_OUT_MS"]), enqueued_ms - enqueued_ms % PRECISION_MS)


def pair_names(messages: Iterable[MessageExt]) -> set[tuple[str, ...]]:
    return {tuple(sorted(message.properties)) for message in messages}


class HandedTimers:
    """The messages of one store. They are due over some seconds from the first send on."""

    def __init__(self) -> None:
        self.due_ms: dict[str, int] = {}
        self._handles: dict[str, str] = {}
        self._stored = 0
        """Records of the timer topic that the calls have made."""

    def _send(self, client: RawClient, name: str, delay_ms: int) -> None:
        self.due_ms[name] = time.time_ns() // 1_000_000 + delay_ms
        pairs = {"TIMER_DELIVER_MS": str(self.due_ms[name]), "UNIQ_KEY": f"7F{len(self.due_ms):030X}", "KEYS": name}
        answer = client.send(TOPIC, name.encode(), pairs=pairs)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self._handles[name] = answer.ext_fields["recallHandle"]
        self._stored += 1

    def _recall(self, client: RawClient, name: str) -> None:
        fields = {"topic": TOPIC, "recallHandle": self._handles[name], "producerGroup": "P"}
        answer = ask_started(client, RequestCode.RECALL_MESSAGE, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self._stored += 1

    def begin(self, client: RawClient) -> None:
        """Send, and recall some that are due after the hand-over."""
        for number in range(SPREAD):
            self._send(client, f"{BEFORE}{number}", 1500 + number * STEP_MS)
        for number in range(3):
            self._send(client, f"{RECALLED}{number}", 1400 + SPREAD * STEP_MS)
            self._recall(client, f"{RECALLED}{number}")
        self._send(client, ROLLED, ROLLED_MS)

    def wait_for_some(self, client: RawClient, store: Path) -> None:
        """Wait until some are delivered and others wait, and the check file knows of all."""
        wait_until(lambda: len(read(client, TOPIC)) > SPREAD // 7, "some timer messages are delivered")

        def is_known() -> bool:
            checkpoint = read_timer_checkpoint(store)
            return checkpoint is not None and checkpoint.master_queue_offset >= self._stored

        wait_until(is_known, "the check file names all timer messages: a broker takes those behind it again")

    def may_repeat(self, store: Path) -> range:
        """Times of slots that the other broker may deliver again after a kill: those from the check file's time on."""
        checkpoint, now_ms = read_timer_checkpoint(store), time.time_ns() // 1_000_000
        assert checkpoint is not None, "the first broker has saved its progress"
        lag_ms = now_ms - checkpoint.last_read_ms
        assert lag_ms < CHECKPOINT_LAG_MS, f"the check file is {lag_ms} ms behind"
        return range(checkpoint.last_read_ms, now_ms)

    def check(self, client: RawClient, may_repeat: range) -> None:
        """The other broker delivers all that waits."""
        self._send(client, AFTER, 500)
        wanted = {name for name in self.due_ms if not name.startswith(RECALLED)}
        wait_until(lambda: {name_of(message) for message in read(client, TOPIC)} >= wanted, "all are delivered")
        found = read(client, TOPIC)
        copies = Counter(map(name_of, found))
        assert set(copies) == wanted, "no recalled message is delivered"
        twice = {name for name, count in copies.items() if count > 1}
        slots = {slot_of(message) for message in found if name_of(message) in twice}
        print(f"{len(found)} copies of {len(wanted)} timer messages, {len(twice)} come twice, slots {sorted(slots)}")
        assert all(slot_ms in may_repeat for slot_ms in slots), f"{sorted(slots)} are not all in {may_repeat}"
        assert all(message.store_timestamp_ms >= self.due_ms[name_of(message)] for message in found), "none early"
        assert len(pair_names(m for m in found if name_of(m) != ROLLED)) == 1, "both brokers deliver alike"
        assert "TIMER_ROLL_TIMES" in found[[name_of(m) for m in found].index(ROLLED)].properties, "it waited too long"
        sources = [m for m in read(client, TIMER_TOPIC) if name_of(m).startswith((BEFORE, AFTER))]
        assert len(pair_names(sources)) == 1, "both brokers take timer messages alike"
