"""Batches of acknowledgements: C reads the regular shape, Python every other, and both do the same."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import BATCH_ACK, BROKER, Stage, receipts

from ringmq.pop.batch_acks import BITS_BYTES_MAX, BYTES_MAX, GROUPS_MAX, read_batch_ack
from ringmq.pop.role_words import Counter
from ringmq.remoting.errors import BadBody

LONG = {
    "c": "consumerGroup", "t": "topic", "r": "retry", "so": "startOffset", "q": "queueId", "rq": "reviveQueueId",
    "pt": "popTime", "it": "invisibleTime", "b": "bitSet",
}  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of two queues with forty messages each."""
    made = Stage(tmp_path / "store")
    made.topic("T", 2)
    made.group("G")
    for queue_id in (0, 1):
        made.send("T", 40, queue_id)
    yield made


def bits(*numbers: int) -> str:
    """The bit set of Java's, as Base64."""
    value = sum(1 << number for number in numbers)
    return base64.b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()


def group(receipt: str, bit_set: Any, **fields: Any) -> dict[str, Any]:
    """Acknowledgements by a receipt."""
    start, pop_time, invisible, revive_queue, flag, _, queue_id, _ = receipt.split(" ")
    return {
        "b": bit_set, "c": "G", "it": int(invisible), "pt": int(pop_time), "q": int(queue_id), "r": flag,
        "rq": int(revive_queue), "so": int(start), "t": "T", **fields,
    }  # fmt: skip


def body(*groups: dict[str, Any], broker: Any = BROKER) -> bytes:
    return json.dumps({"acks": list(groups), "brokerName": broker}, separators=(",", ":")).encode()


def acked(stage: Stage) -> int:
    return stage.desk.native.counted(Counter.ACKS)


@pytest.mark.parametrize("odd", [False, True])
def test_one_batch_acknowledges_messages_of_several_queues(stage: Stage, odd: bool) -> None:
    made = receipts(stage.pop(maxMsgNums=8, queueId=0)) + receipts(stage.pop(maxMsgNums=8, queueId=1))
    answer = stage.ask(BATCH_ACK, {}, body(group(made[0], bits(0, 1, 7)), group(made[8], bits(2))), odd=odd)
    assert (answer.code, answer.command.remark, answer.fields) == (0, None, {})
    assert acked(stage) == 4
    stage.ask(BATCH_ACK, {}, body(group(made[0], bits(0, 1, 2))), odd=odd)
    assert acked(stage) == 5


SHAPES = {
    "long names": lambda g: body({LONG[name]: value for name, value in g.items()}),
    "list of bytes": lambda g: body(g | {"b": list(base64.b64decode(g["b"]))}),
    "texts for numbers": lambda g: body(g | {"so": str(g["so"]), "pt": str(g["pt"])}),
    "more fields": lambda g: body(g | {"x": [1, {"y": None}]}),
    "escapes": lambda g: body(g).replace(b'"G"', b'"\\u0047"'),
    "blanks": lambda g: json.dumps({"acks": [g], "brokerName": BROKER}, indent=2).encode(),
    "broker first": lambda g: json.dumps({"brokerName": BROKER, "acks": [g]}).encode(),
    "no invisible time": lambda g: body({name: value for name, value in g.items() if name != "it"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_that_stock_reads(stage: Stage, shape: str) -> None:
    made = receipts(stage.pop(maxMsgNums=10, queueId=0))
    assert stage.ask(BATCH_ACK, {}, SHAPES[shape](group(made[0], bits(1, 9)))).code == 0
    assert acked(stage) == 2


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    ("fields", "broker"),
    [
        ({"c": "NO"}, BROKER), ({"t": "NO"}, BROKER), ({"q": 9}, BROKER), ({"q": -1}, BROKER), ({"pt": 1}, BROKER),
        ({"so": 5}, BROKER), ({"so": -1}, BROKER), ({"so": 2**63 - 1}, BROKER), ({"so": -(2**63)}, BROKER),
        ({"rq": 999}, BROKER), ({"r": "1"}, BROKER), ({"r": "2"}, BROKER), ({"b": ""}, BROKER),
        ({"b": bits(500)}, BROKER), ({}, "broker-b"), ({}, ""),
    ],
)  # fmt: skip
def test_groups_that_name_nothing_have_no_effect(stage: Stage, fields: dict[str, Any], broker: str, odd: bool) -> None:
    made = receipts(stage.pop(maxMsgNums=10, queueId=0))
    assert stage.ask(BATCH_ACK, {}, body(group(made[0], bits(1), **fields), broker=broker), odd=odd).code == 0
    assert acked(stage) == 0
    assert stage.desk.native.counted(Counter.ACKS_FOREIGN) == int(broker != BROKER)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("content", [b'{"acks":[],"brokerName":"broker-a"}', b'{"brokerName":"broker-a"}', b"{}"])
def test_an_empty_batch_is_answered_208(stage: Stage, content: bytes, odd: bool) -> None:
    answer = stage.ask(BATCH_ACK, {}, content, odd=odd)
    assert (answer.code, answer.command.remark) == (208, None)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (body({"r": "7", "c": "G", "t": "T", "b": "AQ=="}), "getRetry fail, format is wrong"),
        (b"[]", "batch of acknowledgements"), (b"", "batch of acknowledgements"), (b'{"acks":3}', "acks"),
        (b'{"acks":[3]}', "acks[0] is no object"), (body({"b": "?"}), "acks[0]: b is no bit map"),
        (b'{"acks":[{"b":[1e999]}]}', "acks[0]: b is no bit map"), (body({"b": ["x"]}), "acks[0]: b is no bit map"),
        (body({"q": 2**31}), "acks[0]: q is outside"), (body({"q": "x"}), "acks[0]: q = 'x' is no whole number"),
        (body({"c": "G" * 256}), "acks[0]: c has 256 bytes, the limit is 255"),
        (body({"b": "AAAA" * (BITS_BYTES_MAX // 3 + 1)}), f"acks[0]: b has 16386 bytes, the limit is {BITS_BYTES_MAX}"),
        (body({"b": [0] * (BITS_BYTES_MAX + 1)}), f"acks[0]: b has 16385 bytes, the limit is {BITS_BYTES_MAX}"),
        (body(*[{}] * (GROUPS_MAX + 1)), f"acks has {GROUPS_MAX + 1} groups, the limit is {GROUPS_MAX}"),
    ],
)  # fmt: skip
def test_refused_batches(stage: Stage, content: bytes, wanted: str) -> None:
    answer = stage.ask(BATCH_ACK, {}, content)
    assert answer.code == 1
    assert wanted in str(answer.command.remark)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("bad", [{"r": "7"}, {"b": "?"}, {"q": 2**31}, {"c": "G" * 256}, {"so": "x"}])
def test_a_refused_batch_acknowledges_nothing(stage: Stage, bad: dict[str, Any], odd: bool) -> None:
    """Stock acknowledges the groups before the bad one. A client that is told of an error sends all of them again."""
    made = receipts(stage.pop(maxMsgNums=4, queueId=0))
    content = body(group(made[0], bits(0)), group(made[0], bits(1), **bad))
    assert stage.ask(BATCH_ACK, {}, content, odd=odd).code == 1
    assert acked(stage) == 0
    assert stage.ask(BATCH_ACK, {}, body(group(made[0], bits(0, 1))), odd=odd).code == 0
    assert acked(stage) == 2


def test_c_and_python_agree_about_any_body(tmp_path: Path) -> None:
    """Bodies with every kind of damage: C either leaves one to Python, or does what Python would do."""
    stages = []
    for name in ("c", "python"):
        made = Stage(tmp_path / name)
        made.topic("T")
        made.group("G")
        made.send("T", 64)
        stages.append(made)
    rng = random.Random(51)
    for _ in range(64):
        answers = [stage_.pop(maxMsgNums=1) for stage_ in stages]
        made = [receipts(answer)[0] for answer in answers]
        bit_set = bits(0, 3, rng.randrange(70))
        good = [body(group(receipt, bit_set)) for receipt in made]
        damage = rng.choice([None, "cut", "swap", "insert"])
        at, byte = rng.randrange(len(good[0])), rng.choice(b'"{}[]:,\\ 09ax=')
        results = []
        for stage_, content, odd in zip(stages, good, (False, True), strict=True):
            if damage == "cut":
                content = content[:at]
            elif damage == "swap":
                content = content[:at] + bytes([byte]) + content[at + 1 :]
            elif damage == "insert":
                content = content[:at] + bytes([byte]) + content[at:]
            answer = stage_.ask(BATCH_ACK, {}, content, odd=odd)
            results.append((answer.code, acked(stage_)))
        assert results[0] == results[1], (damage, at, byte, good)


def test_a_body_that_is_too_long_is_not_read() -> None:
    with pytest.raises(BadBody, match=f"at most {BYTES_MAX} are read"):
        read_batch_ack(b" " * BYTES_MAX + b"{}")


def test_a_list_that_is_too_long_is_not_read() -> None:
    """The numbers of a long list are infinite: a loop over them would find no bit map."""
    with pytest.raises(BadBody, match="the limit is"):
        read_batch_ack(b'{"acks":[{"b":[' + b"1e999," * BITS_BYTES_MAX + b"1e999]}]}")


def test_the_bit_map_of_a_batch_may_be_long() -> None:
    assert len(read_batch_ack(body({"b": "AAAA" * (BITS_BYTES_MAX // 3)})).acks[0].bits) <= BITS_BYTES_MAX
    assert len(read_batch_ack(body({"b": [1] * BITS_BYTES_MAX})).acks[0].bits) == BITS_BYTES_MAX


@pytest.mark.parametrize("odd", [False, True])
def test_a_batch_of_the_largest_number_of_groups(stage: Stage, odd: bool) -> None:
    """And one more: C leaves it to Python, which refuses it."""
    receipt = receipts(stage.pop(maxMsgNums=1, queueId=0))[0]
    regular = group(receipt, bits(0))
    assert stage.ask(BATCH_ACK, {}, body(*[regular] * (GROUPS_MAX + 1)), odd=odd).code == 1
    assert acked(stage) == 0
    assert stage.ask(BATCH_ACK, {}, body(*[regular] * GROUPS_MAX), odd=odd).code == 0
    assert acked(stage) == 1
