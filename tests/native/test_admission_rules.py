"""Admission rules through the plane and a read role: published, followed, taken away."""

import os

import pytest
from msgspec import structs
from plane_kit import die_with_parent, element
from reader_kit import BOTH, Client, MakeKit, ReaderKit, connected, send_frame

from ringmq.ipc.admission import (
    ANY_TRANSACTION,
    QueueFrom,
    Rule,
    RuleKind,
    RulePair,
    ValueFrom,
    When,
    publish_rules,
    published_rules,
    rules_struct,
)
from ringmq.ipc.admission_twin import added_pairs
from ringmq.native import lib
from ringmq.remoting.codes import SerializeType

ADDITIONS = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"
REAL = (RulePair(b"REAL_TOPIC", ValueFrom.TOPIC), RulePair(b"REAL_QID", ValueFrom.QUEUE))
UNIQ = "UNIQ_KEY\x01AB\x02"


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    kit = make_kit()
    kit.set_additions(ADDITIONS.encode())
    kit.start("write")
    kit.start("read")
    return kit


def delay_rule(kit: ReaderKit) -> Rule:
    """As stock treats delay levels (HookUtils.transformDelayLevelMessage): DELAY stays, at most the highest level."""
    topic = kit.wide_topic(b"SCHEDULE_TOPIC_XXXX", 18)
    pairs = (*REAL, RulePair(b"DELAY", ValueFrom.LEVEL), RulePair(b"TIMER_DELAY_MS", ValueFrom.CUT))
    return Rule(
        RuleKind.REDIRECT, b"DELAY", When.POSITIVE, topic_id=topic, queue_from=QueueFrom.LEVEL, queue_id=18, pairs=pairs
    )


def records(kit: ReaderKit) -> list[tuple[str, int, int, int, str]]:
    """(topic, queue, queue offset, sysFlag, properties without the broker's additions) of every record."""
    rows = []
    for _, data, view in kit.records():
        topic = data[view.topic_at : view.topic_at + view.topic_length].decode()
        properties = data[view.properties_at : view.properties_at + view.properties_length].decode()
        assert properties.endswith(ADDITIONS)
        rows.append((topic, view.queue_id, view.queue_offset, view.sys_flag, properties.removesuffix(ADDITIONS)))
    return rows


def goes_to_control(kit: ReaderKit, client: Client, frame: bytes, body: bytes) -> None:
    """Unchanged, and nothing is stored."""
    before = kit.marks.append_offset
    client.send(frame)
    record, payload = kit.take()
    assert payload == frame[: len(frame) - len(body)]
    kit.verdict(record, lib.RMQ_VERDICT_DROP)
    assert kit.marks.append_offset == before


@pytest.mark.parametrize("serialise", BOTH)
def test_a_delayed_send_by_a_published_rule(kit: ReaderKit, serialise: SerializeType) -> None:
    sent = f"KEYS\x01k\x02DELAY\x013\x02{UNIQ}"
    frame = send_frame("TopicA", b"later", sent, queue=2, serialise=serialise)
    with connected(kit) as client:
        goes_to_control(kit, client, frame, b"later")

        publish_rules(kit.plane, [delay_rule(kit)])
        answers = [client.ask(frame), client.ask(frame)]
        publish_rules(kit.plane, [])
        goes_to_control(kit, client, frame, b"later")
    stored = f"KEYS\x01k\x02{UNIQ}REAL_TOPIC\x01TopicA\x02REAL_QID\x012\x02DELAY\x013\x02"
    assert records(kit) == [("SCHEDULE_TOPIC_XXXX", 2, 0, 0, stored), ("SCHEDULE_TOPIC_XXXX", 2, 1, 0, stored)]
    places = [offset for offset, _, _ in kit.records()]
    for number, answer in enumerate(answers):  # stock: the client's queue, the offset and place in the system topic
        assert answer.code == 0 and answer.remark is None
        assert answer.ext_fields == {
            "queueId": "2", "transactionId": "AB", "msgId": f"7F00000100002A9F{places[number]:016X}",
            "TRACE_ON": "true", "MSG_REGION": "DefaultRegion", "queueOffset": str(number),
        }  # fmt: skip


@pytest.mark.parametrize("serialise", BOTH)
def test_levels_are_clipped_and_timers_cut(kit: ReaderKit, serialise: SerializeType) -> None:
    rule = delay_rule(kit)
    timer = Rule(RuleKind.REFUSE, b"TIMER_DELAY_MS", code=13, remark="timers are refused")
    publish_rules(kit.plane, [rule, timer])
    sends = {
        "a\x01b\x02TIMER_DELAY_MS\x015\x02DELAY\x0199\x02REAL_TOPIC\x01mine\x02c\x01d": ("a\x01b\x02c\x01d\x02", 0),
        "TIMER_DELAY_MS\x015\x02": ("", 13),
        "DELAY\x010\x02k\x01v": ("DELAY\x010\x02k\x01v\x02", 0),
    }
    with connected(kit) as client:
        answers = [client.ask(send_frame("TopicA", b"x", UNIQ + sent, queue=-1, serialise=serialise)) for sent in sends]
    assert [answer.code for answer in answers] == [code for _, code in sends.values()]
    assert answers[1].remark == "timers are refused"
    (clipped, _), _, (plain, _) = sends.values()
    queue = int(answers[0].ext_fields["queueId"])
    added = added_pairs(rule, b"TopicA", queue, 18, b"").decode()
    assert [row[:2] + row[4:] for row in records(kit)] == [
        ("SCHEDULE_TOPIC_XXXX", 17, UNIQ + clipped + added),
        ("TopicA", int(answers[2].ext_fields["queueId"]), UNIQ + plain),
    ]


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize("own_key", [True, False])
def test_a_half_message_by_its_transaction_bits(kit: ReaderKit, serialise: SerializeType, own_key: bool) -> None:
    topic = kit.wide_topic(b"RMQ_SYS_TRANS_HALF_TOPIC", 1)
    pairs = (*REAL, RulePair(b"__transactionId__", ValueFrom.UNIQ_KEY), RulePair(b"by", ValueFrom.TEXT, b"rule"))
    half = Rule(
        RuleKind.REDIRECT,
        b"TRAN_MSG",
        When.TRUE,
        transaction=ANY_TRANSACTION,
        topic_id=topic,
        sys_flag_clear=0xC,
        pairs=pairs,
    )
    publish_rules(kit.plane, [half])
    sent = "TRAN_MSG\x01true\x02" + (UNIQ if own_key else "")
    with connected(kit) as client:
        answer = client.ask(send_frame("TopicA", b"half", sent, queue=3, serialise=serialise, f="5"))
        goes_to_control(kit, client, send_frame("TopicA", b"half", UNIQ, serialise=serialise, f="4"), b"half")
    key = answer.ext_fields["transactionId"]
    assert (answer.ext_fields["queueId"], key == "AB") == ("3", own_key)
    own = sent if own_key else f"{sent}UNIQ_KEY\x01{key}\x02"
    added = f"REAL_TOPIC\x01TopicA\x02REAL_QID\x013\x02__transactionId__\x01{key}\x02by\x01rule\x02"
    assert records(kit) == [("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1, own + added)]


def test_the_longest_topic_and_the_longest_pairs(kit: ReaderKit) -> None:
    name = "L" * 255
    kit.wide_topic(name.encode())
    topic = kit.wide_topic(b"System", 4)
    pairs = (*REAL, RulePair(b"n" * 28, ValueFrom.TEXT, b"v" * 32), RulePair(b"m" * 28, ValueFrom.TEXT, b"w" * 32))
    rule = Rule(
        RuleKind.REDIRECT, b"DELAY", topic_id=topic, queue_from=QueueFrom.ORIGINAL, pairs=pairs, sys_flag_clear=1
    )
    publish_rules(kit.plane, [rule])
    with connected(kit) as client:
        answer = client.ask(send_frame(name, b"x", "DELAY\x01any\x02", queue=1, f="1"))
    own = f"DELAY\x01any\x02UNIQ_KEY\x01{answer.ext_fields['transactionId']}\x02"
    assert records(kit) == [("System", 1, 0, 0, own + added_pairs(rule, name.encode(), 1, 0, b"").decode())]


def test_what_no_rule_names_and_what_its_topic_cannot_take_goes_to_control(kit: ReaderKit) -> None:
    rule = delay_rule(kit)
    publish_rules(kit.plane, [rule])
    batch = element(b"one")
    with connected(kit) as client:
        for properties in (
            "DELAY\x013\x02INNER_NUM\x011\x02",
            "DELAY\x01soon\x02",
            "DELAY\x013\x02TRAN_MSG\x01true\x02",
        ):
            goes_to_control(kit, client, send_frame("TopicA", b"x", properties), b"x")
        goes_to_control(kit, client, send_frame("TopicA", batch, "DELAY\x013\x02", batch=True), batch)
        for gone in (999, kit.wide_topic(b"Small", 2)):
            publish_rules(kit.plane, [structs.replace(rule, topic_id=gone)])
            goes_to_control(kit, client, send_frame("TopicA", b"x", "DELAY\x013\x02"), b"x")
        lib.rmq_topic_set(kit.plane, rule.topic_id, 0)
        publish_rules(kit.plane, [rule])
        goes_to_control(kit, client, send_frame("TopicA", b"x", "DELAY\x013\x02"), b"x")


def test_a_set_reads_back_as_it_was_published(kit: ReaderKit) -> None:
    refuse = Rule(RuleKind.REFUSE, transaction=8, code=16, remark="not here: ä")
    second = structs.replace(
        delay_rule(kit), room_bytes=77, with_name=b"TRAN_MSG", with_when=When.TRUE, is_retried=True
    )
    rules = (delay_rule(kit), refuse) * 7 + (second, refuse)
    publish_rules(kit.plane, rules)
    assert published_rules(kit.plane) == rules
    publish_rules(kit.plane, rules[1:3])
    assert published_rules(kit.plane) == rules[1:3]
    with pytest.raises(ValueError, match="17 admission rules"):
        publish_rules(kit.plane, [*rules, refuse])
    assert published_rules(kit.plane) == rules[1:3]


@pytest.mark.parametrize(
    "change",
    [
        {"name": b"KEYS"}, {"name": b""}, {"name": b"", "transaction": ANY_TRANSACTION},
        {"queue_from": QueueFrom.LEVEL, "when": When.PRESENT}, {"queue_id": 0},
        {"transaction": 1}, {"topic_id": 0}, {"pairs": (RulePair(b"UNIQ_KEY", ValueFrom.TEXT, b"x"),)},
        {"pairs": (RulePair(b"", ValueFrom.TEXT, b"x"),)}, {"pairs": (RulePair(b"a\x01", ValueFrom.TEXT, b"x"),)},
        {"pairs": (RulePair(b"a", ValueFrom.TEXT, b""),)}, {"pairs": (RulePair(b"a", ValueFrom.TEXT, b"\x02"),)},
        {"pairs": (REAL[0], REAL[0])}, {"with_name": b"KEYS"}, {"room_bytes": 32768},
        {"name": b"", "transaction": 4, "when": When.PRESENT, "queue_from": QueueFrom.FIXED, "with_name": b"DELAY"},
    ],
    ids=str,
)  # fmt: skip
def test_rules_that_no_reader_could_follow_are_refused(kit: ReaderKit, change: dict) -> None:
    publish_rules(kit.plane, [])
    with pytest.raises(ValueError, match="malformed"):
        publish_rules(kit.plane, [structs.replace(delay_rule(kit), **change)])
    assert published_rules(kit.plane) == ()


def test_a_reader_never_takes_half_a_set(kit: ReaderKit) -> None:
    """Another process publishes sets of different sizes as fast as it can."""
    rule = delay_rule(kit)
    sets = [tuple(structs.replace(rule, code=size, remark="r" * size) for _ in range(size)) for size in (16, 1, 9)]
    publish_rules(kit.plane, sets[0])
    made = [rules_struct(rules) for rules in sets]
    child = os.fork()
    if not child:
        die_with_parent()
        for number in range(60_000):
            lib.rmq_rules_publish(kit.plane, made[number % len(made)])
        os._exit(0)
    seen = set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        taken = published_rules(kit.plane)
        assert taken in sets
        seen.add(len(taken))
    assert len(seen) > 1


def test_each_message_of_a_timed_batch_leaves_room_for_the_pairs_of_its_copies(kit: ReaderKit) -> None:
    """One without room would be acknowledged and never delivered."""
    topic = kit.wide_topic(b"rmq_sys_wheel_timer", 1)
    pairs = (*REAL, RulePair(b"TIMER_OUT_MS", ValueFrom.OUT_MS))
    rule = Rule(
        RuleKind.TIMER, topic_id=topic, pairs=pairs, precision_ms=1000, delay_max_ms=1 << 40,
        slot_messages_max=0x7FFFFFFF, room_bytes=104,
    )  # fmt: skip
    publish_rules(kit.plane, [rule])
    timed = "TIMER_DELAY_SEC\x01100\x02"
    added = added_pairs(rule, b"TopicA", 0, 0, b"", 1_800_000_000_000)
    room = lib.RMQ_PROPERTIES_BYTES_MAX - 1 - len(timed) - len(added) - len(ADDITIONS) - rule.room_bytes

    def batch(size: int, end: bytes) -> bytes:
        return element(b"one") + element(b"two", b"k\x01" + b"v" * (size - 3) + end)

    with connected(kit) as client:
        for body, code in ((batch(room, b"\x02"), 0), (batch(room, b"w"), 13), (batch(room + 1, b"\x02"), 13)):
            answer = client.ask(send_frame("TopicA", body, timed, batch=True))
            assert answer.code == code
        assert answer.remark is not None and "in a message of the batch" in answer.remark
        assert client.ask(send_frame("TopicA", batch(room + 100, b"\x02"), batch=True)).code == 0, "no timer"
        assert client.ask(send_frame("TopicA", element(b"x", b"k\x01v")[:-1], timed, batch=True)).code == 13
    assert [row[0] for row in records(kit)] == ["rmq_sys_wheel_timer"] * 2 + ["TopicA"] * 2
