"""Stock's copies as data: the edits of each use, applied to golden records, give the records that stock 5.3.3 stored.

Facts of apache/rocketmq 5.3.3. Stock computes the stored properties before it clears pairs, so REAL_TOPIC, REAL_QID and
DELAY stay in the delivered record.

| Use | Source | Pairs | Other fields |
|---|---|---|---|
| delay level due | ScheduleMessageService.messageTimeUp | none | none |
| half message, checked | needDiscard, renewHalfMessageInner | TRANSACTION_CHECK_TIMES + 1 | flag 0, reconsume times 0 |
| half message, too young | renewImmunityHalfMessageInner | TRAN_PREPARED_QUEUE_OFFSET unless there | the same |
| commit | EndTransactionProcessor.endMessageTransaction | none | type commit, place of the half |
| send-back | consumerSendMsgBack | WAIT, DELAY; RETRY_TOPIC, ORIGIN_MESSAGE_ID unless there | times + 1 |
| ... behind it | HookUtils.transformDelayLevelMessage | REAL_TOPIC, REAL_QID | |
| timer due | TimerMessageStore.convert | TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS | none |
| timer rolled | the same | TIMER_ROLL_TIMES + 1 besides | none |
| POP revival | PopReviveService.reviveRetry | 1ST_POP_TIME unless there | times + 1, born host = store host |
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from msgspec.structs import replace

from ringmq.store import layout
from ringmq.store.record import Record, parse_properties
from ringmq.store.record_copy import CopiedRequest, EditKind, From, PairEdit, RecordCopy
from tests.store.copy_kit import both, encoded, log_records, parsed, stored

Plan = Callable[[Record, Record], RecordCopy | None]
"""(source, stock's copy) -> how the copy is told, None if this is no such pair of records."""

CHECKED = (PairEdit(EditKind.ADD, b"TRANSACTION_CHECK_TIMES", 1),)
TOO_YOUNG = (PairEdit(EditKind.DEFAULT, b"TRAN_PREPARED_QUEUE_OFFSET", From.QUEUE_OFFSET),)


def sent_back(level: int) -> tuple[PairEdit, ...]:
    """Edits of a message that a consumer has sent back; level 0 goes to the dead letters."""
    return (
        PairEdit(EditKind.DEFAULT, b"RETRY_TOPIC", From.TOPIC),
        PairEdit(EditKind.SET, b"WAIT", b"false"),
        PairEdit(EditKind.SET, b"DELAY", level),
        PairEdit(EditKind.DEFAULT, b"ORIGIN_MESSAGE_ID", From.MESSAGE_ID),
    )


def delayed(topic: bytes, queue_id: int) -> tuple[PairEdit, ...]:
    """What a message gets on its way into the schedule topic: where it is to go when it is due."""
    return PairEdit(EditKind.SET, b"REAL_TOPIC", topic), PairEdit(EditKind.SET, b"REAL_QID", queue_id)


def timer_due(enqueue_ms: int, dequeue_ms: int) -> tuple[PairEdit, ...]:
    """Edits of a timer message that leaves the wheel."""
    return PairEdit(EditKind.SET, b"TIMER_ENQUEUE_MS", enqueue_ms), PairEdit(
        EditKind.SET, b"TIMER_DEQUEUE_MS", dequeue_ms
    )


TIMER_ROLLED = (PairEdit(EditKind.ADD, b"TIMER_ROLL_TIMES", 1),)


def revived(pop_time_ms: int, reconsume_times: int) -> tuple[PairEdit, ...]:
    """Edits of a popped message that nobody has acknowledged in time."""
    return (PairEdit(EditKind.DEFAULT if reconsume_times else EditKind.SET, b"1ST_POP_TIME", pop_time_ms),)


def plan_delay(source: Record, copy: Record) -> RecordCopy | None:
    due = source.topic == layout.SCHEDULE_TOPIC and source.properties["REAL_TOPIC"] == copy.topic
    return RecordCopy(b"", queue_id=int(source.properties["REAL_QID"])) if due else None


def plan_check(source: Record, copy: Record) -> RecordCopy | None:
    again = source.topic == copy.topic == layout.HALF_TOPIC
    return RecordCopy(b"", edits=CHECKED, flag=0, reconsume_times=0) if again else None


def plan_commit(source: Record, copy: Record) -> RecordCopy | None:
    if source.topic != layout.HALF_TOPIC or copy.prepared_transaction_offset != source.physical_offset:
        return None
    return RecordCopy(
        b"", queue_id=int(source.properties["REAL_QID"]), sys_flag_clear=layout.TRANSACTION_MASK,
        sys_flag_set=layout.TRANSACTION_COMMIT, prepared_transaction_offset=source.physical_offset,
    )  # fmt: skip


def plan_send_back(source: Record, copy: Record) -> RecordCopy | None:
    if copy.topic != layout.SCHEDULE_TOPIC or copy.reconsume_times != source.reconsume_times + 1:
        return None
    retry_topic, level = copy.properties["REAL_TOPIC"].encode(), int(copy.properties["DELAY"])
    return RecordCopy(
        b"", queue_id=level - 1, edits=(*sent_back(level), *delayed(retry_topic, 0)), reconsume_times_added=1
    )


def plan_dead_letter(source: Record, copy: Record) -> RecordCopy | None:
    dead = copy.topic.startswith("%DLQ%") and source.topic.startswith("%RETRY%")
    return RecordCopy(b"", edits=sent_back(0), reconsume_times_added=1) if dead else None


def plan_timer(source: Record, copy: Record) -> RecordCopy | None:
    if source.topic != layout.TIMER_TOPIC or source.properties["REAL_TOPIC"] != copy.topic:
        return None
    edits = timer_due(int(copy.properties["TIMER_ENQUEUE_MS"]), int(copy.properties["TIMER_DEQUEUE_MS"]))
    return RecordCopy(b"", queue_id=int(source.properties["REAL_QID"]), edits=edits)


def plan_revival(source: Record, copy: Record) -> RecordCopy | None:
    if not copy.topic.startswith("%RETRY%") or copy.reconsume_times != source.reconsume_times + 1:
        return None
    host, _, port = copy.store_host.rpartition(":")
    edits = revived(int(copy.properties["1ST_POP_TIME"]), source.reconsume_times)
    return RecordCopy(b"", edits=edits, reconsume_times_added=1, born_host=(ip_address(host).packed, int(port)))


def same_messages(raws: list[bytes]) -> Iterator[list[tuple[bytes, Record]]]:
    """Records of the same message, in log order."""
    found: dict[tuple[str, bytes], list[tuple[bytes, Record]]] = defaultdict(list)
    for raw in raws:
        record = parsed(raw)
        if "UNIQ_KEY" in record.properties:
            found[record.properties["UNIQ_KEY"], record.body].append((raw, record))
    return (records for records in found.values() if len(records) > 1)


def check_use(plan: Plan, source_raw: bytes, copy_raw: bytes) -> bool:
    """Hold the told copy against stock's; False if these two are no such records."""
    copy = parsed(copy_raw)
    told = plan(parsed(source_raw), copy)
    if told is None:
        return False
    (request,) = both([replace(told, data=source_raw, check_crc=True)])
    assert isinstance(request, CopiedRequest)
    made = parsed(encoded(request, copy.topic_raw, copy_raw))
    assert made.properties == copy.properties
    assert replace(made, properties_raw=copy.properties_raw) == copy
    return True


def count_uses(raws: list[bytes], plans: dict[str, Plan]) -> Counter[str]:
    """Every record that stock made by one of the uses, from the newest earlier record that can be its source."""
    met: Counter[str] = Counter()
    for records in same_messages(raws):
        for number, (copy_raw, _) in enumerate(records):
            sources = [raw for raw, _ in reversed(records[:number])]
            met.update(name for name, plan in plans.items() if any(check_use(plan, raw, copy_raw) for raw in sources))
    return met


def test_uses_of_a_stock_broker(golden_basic: Path) -> None:
    plans: dict[str, Plan] = {
        "delay": plan_delay, "check": plan_check, "commit": plan_commit, "send-back": plan_send_back,
        "dead letter": plan_dead_letter, "timer": plan_timer,
    }  # fmt: skip
    met = count_uses(log_records(golden_basic), plans)
    assert met == {"delay": 22, "check": 104, "commit": 16, "send-back": 14, "dead letter": 4, "timer": 2}


def test_revivals_of_a_stock_broker(pop_copy: Path) -> None:
    met = count_uses(log_records(pop_copy), {"revival": plan_revival})
    assert met["revival"] > 10


@pytest.mark.parametrize(
    ("edits", "before", "after"),
    [
        (TOO_YOUNG, {"TRAN_MSG": "true"}, {"TRAN_MSG": "true", "TRAN_PREPARED_QUEUE_OFFSET": "41"}),
        (TOO_YOUNG, {"TRAN_PREPARED_QUEUE_OFFSET": "7"}, {"TRAN_PREPARED_QUEUE_OFFSET": "7"}),
        (CHECKED, {"TRANSACTION_CHECK_TIMES": "14"}, {"TRANSACTION_CHECK_TIMES": "15"}),
        ((*timer_due(1, 2), *TIMER_ROLLED), {"TIMER_OUT_MS": "9"},
         {"TIMER_OUT_MS": "9", "TIMER_ENQUEUE_MS": "1", "TIMER_DEQUEUE_MS": "2", "TIMER_ROLL_TIMES": "1"}),
        (TIMER_ROLLED, {"TIMER_ROLL_TIMES": "1"}, {"TIMER_ROLL_TIMES": "2"}),
        (sent_back(5), {"RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "ID", "DELAY": "4"},
         {"RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "ID", "WAIT": "false", "DELAY": "5"}),
        (revived(10, 0), {"1ST_POP_TIME": "5"}, {"1ST_POP_TIME": "10"}),
        (revived(10, 1), {"1ST_POP_TIME": "5"}, {"1ST_POP_TIME": "5"}),
    ],
)  # fmt: skip
def test_uses_that_no_golden_record_shows(
    edits: tuple[PairEdit, ...], before: dict[str, str], after: dict[str, str]
) -> None:
    raw = "".join(f"{name}\x01{value}\x02" for name, value in before.items()).encode()
    (copy,) = both([RecordCopy(stored(queue_offset=41, properties=raw), edits=edits)])
    assert isinstance(copy, CopiedRequest) and parse_properties(copy.properties) == after
