"""Filters of pops: tags by their hashes, conditions by the properties, compiled once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import ACK, POP, Stage, receipts

from ringmq.broker.requests.turns import finish
from ringmq.native import ffi, lib
from ringmq.pop.filters import Compiled, Filters, compiling


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Twelve messages with the tags a, b, c and none in turn, and their number as a property."""
    made = Stage(tmp_path / "store")
    made.topic("T")
    made.group("G")
    for number in range(12):
        tag = ("a", "b", "c", "")[number % 4]
        tags = f"TAGS\x01{tag}\x02" if tag else ""
        made.send("T", 1, bodies=[b"%d" % number], properties=f"{tags}n\x01{number}\x02".encode())
    yield made


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    ("kind", "expression", "wanted"),
    [
        ("TAG", "a", [0, 4, 8]), ("TAG", "a || c", [0, 2, 4, 6, 8, 10]), ("TAG", "*", list(range(12))),
        ("TAG", "none", []), ("SQL92", "n > 8", [9, 10, 11]), ("SQL92", "TAGS = 'b' AND n < 6", [1, 5]),
        (None, "b", [1, 5, 9]), ("", "b", [1, 5, 9]), ("TAG", None, list(range(12))),
        ("TAG", " || ".join(f"t{number}" for number in range(60)) + " || a", [0, 4, 8]),
    ],
)  # fmt: skip
def test_a_pop_gives_what_its_filter_wants(
    stage: Stage, kind: str | None, expression: str | None, wanted: list[int], odd: bool
) -> None:
    answer = stage.pop(exp=expression, expType=kind, odd=odd, bornTime=0)
    assert [int(message.body) for message in answer.messages] == wanted
    if wanted:
        assert [int(receipt.split(" ")[7]) for receipt in receipts(answer)] == wanted
    assert answer.fields["restNum"] == "0"


def test_what_no_filter_wants_is_done(stage: Stage) -> None:
    """The offset moves past it, and no message of it comes later."""
    answer = stage.pop(exp="a", maxMsgNums=2)
    assert [int(message.body) for message in answer.messages] == [0, 4]
    assert answer.fields["restNum"] == "7"
    for receipt in receipts(answer):
        stage.ack(receipt)
    window = stage.desk.window_of(1, 0)
    assert window is not None
    assert lib.rmq_pop_first_open(stage.windows, window.place) == 5
    assert stage.pop(exp="none").fields["restNum"] == "0"
    assert lib.rmq_pop_first_open(stage.windows, window.place) == 12


def test_an_expression_is_compiled_once(stage: Stage) -> None:
    for _ in range(3):
        stage.pop(exp="a", maxMsgNums=1)
        stage.pop(exp="b", maxMsgNums=1)
    assert len(stage.desk._filters) == 2


LONG = " OR ".join(f"n = {number}" for number in range(300, 700)) + " OR n = 3"
"""A condition whose compilation takes several steps."""


def put_pop(stage: Stage, expression: str) -> int:
    asked = {
        "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 60_000, "pollTime": 0,
        "bornTime": 0, "initMode": 0, "expType": "SQL92", "exp": expression,
    }  # fmt: skip
    return stage.put(POP, asked)


def test_other_requests_are_served_while_an_expression_is_compiled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringmq.pop.filter_queue.SLICE_MS", 0)  # a turn for each step
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    waiting = [put_pop(stage, LONG), put_pop(stage, LONG)]
    assert stage.desk.turn(stage.now_ms + 1), "it goes on at once"
    assert stage.verdict() is None and not stage.desk.is_idle
    parts = receipt.split(" ")
    fields = {"consumerGroup": "G", "topic": "T", "queueId": parts[6], "extraInfo": receipt, "offset": parts[7]}
    ack = stage.put(ACK, fields)
    assert stage.desk.turn(stage.now_ms + 2)
    answer = stage.verdict()
    assert answer is not None and (answer.verdict.pending, answer.code) == (ack, 0)
    assert stage.verdict() is None
    stage.turn()
    answers = [stage.verdict() for _ in waiting]
    assert [(one.verdict.pending, one.code) for one in answers if one] == [(waiting[0], 0), (waiting[1], 210)]
    assert stage.desk.is_idle and len(stage.desk._filters) == 1


def test_pops_that_wait_for_expressions_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.pop.filter_queue.SLICE_MS", 0)
    monkeypatch.setattr("ringmq.pop.filter_queue.WAITING_MAX", 1)
    put_pop(stage, LONG)
    refused = put_pop(stage, "n = 4")
    stage.desk.turn(stage.now_ms + 1)
    answer = stage.verdict()
    assert answer is not None and (answer.verdict.pending, answer.code) == (refused, 2)


def test_pops_for_one_expression_are_served_some_a_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may wait for it, and other clients wait for the end of each turn."""
    monkeypatch.setattr("ringmq.pop.filter_queue.SERVED_PER_TURN", 2)
    waiting, served = [put_pop(stage, "n = 3") for _ in range(5)], list[list[int]]()
    for _ in range(8):
        stage.now_ms += 1
        stage.desk.turn(stage.now_ms)
        served.append([one.verdict.pending for one in iter(stage.verdict, None)])
    assert [pending for turn in served for pending in turn] == waiting
    assert max(len(turn) for turn in served) == 2
    assert stage.desk.is_idle


def test_a_stop_answers_pops_that_a_turn_has_left(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.pop.filter_queue.SERVED_PER_TURN", 1)
    for _ in range(3):
        put_pop(stage, "n = 3")
    while (first := stage.verdict()) is None:
        stage.now_ms += 1
        stage.desk.turn(stage.now_ms)
    stage.desk._requests.close()
    stage.turn()
    rest = [one.code for one in iter(stage.verdict, None)]
    assert [first.code, *rest] == [0, 14, 14]


def test_a_defect_of_the_compiler_is_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker goes on. Its replacement would get the request again, and end, too."""

    def broken(kind: str, expression: str) -> Iterator[None]:
        yield
        raise ZeroDivisionError(expression)

    with monkeypatch.context() as patched:
        patched.setattr("ringmq.pop.filter_queue.compiling", broken)
        answer = stage.pop(exp="n = 3", expType="SQL92", bornTime=0)
    assert (answer.code, answer.command.remark) == (
        1, "POP cannot begin: its expression cannot be compiled: ZeroDivisionError('n = 3')",
    )  # fmt: skip
    assert "Traceback" in caplog.text
    assert [int(message.body) for message in stage.pop(exp="n = 3", expType="SQL92", bornTime=0).messages] == [3]


def test_a_stop_answers_a_pop_that_waits_for_its_expression(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.pop.filter_queue.SLICE_MS", 0)
    put_pop(stage, LONG)
    stage.desk.turn(stage.now_ms + 1)
    stage.desk._requests.close()
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.code == 14


def is_known(filters: Filters, number: int) -> bool:
    text = b"TAG\0t%d" % number
    found = lib.rmq_pop_filter_find(filters.native, text, len(text))
    assert found == ffi.NULL or list(found.wanted.tags[0 : found.wanted.tag_count]) == [number]
    return bool(found != ffi.NULL)


def test_a_full_table_forgets_the_oldest_expressions() -> None:
    filters, most = Filters(), int(lib.RMQ_POP_FILTERS_MAX)
    for number in range(3 * most):
        filters.put("TAG", f"t{number}", Compiled(lib.RMQ_SUBSCRIPTION_TAGS, (number,)))
        assert is_known(filters, number) and len(filters) == min(number + 1, most)
        if number % 97 == 0:
            assert [is_known(filters, one) for one in range(number + 1)] == [
                one > number - most for one in range(number + 1)
            ]
    filters.close()


def test_the_bytes_of_expressions_are_bounded() -> None:
    """The last one is always there."""
    filters, size = Filters(), int(lib.RMQ_POP_FILTERS_BYTES_MAX) // 4
    for number in range(9):
        filters.put("TAG", f"{number}" * (size - 4), Compiled(lib.RMQ_SUBSCRIPTION_ALL))
        assert len(filters) == min(number + 1, 4)
    filters.put("TAG", "x" * (4 * size), Compiled(lib.RMQ_SUBSCRIPTION_ALL))
    assert len(filters) == 1
    filters.close()


def test_a_filter_is_found_by_type_and_text(stage: Stage) -> None:
    """The text of one type is no text of another."""
    assert len(stage.pop(exp="a || b", expType="TAG").messages) == 6
    assert stage.pop(exp="a || b", expType="SQL92", bornTime=0).code == 23


@pytest.mark.parametrize(
    ("kind", "expression", "wanted"),
    [
        ("", "", lib.RMQ_SUBSCRIPTION_ALL), ("TAG", "*", lib.RMQ_SUBSCRIPTION_ALL),
        ("TAG", "a", lib.RMQ_SUBSCRIPTION_TAGS), ("SQL92", "a = 1", lib.RMQ_SUBSCRIPTION_FILTER),
        ("TAG", "||", lib.RMQ_SUBSCRIPTION_COLD), ("SQL92", "a =", lib.RMQ_SUBSCRIPTION_COLD),
        ("SQL92", "", lib.RMQ_SUBSCRIPTION_COLD), ("OTHER", "a", lib.RMQ_SUBSCRIPTION_COLD),
        ("TAG", "||".join(f"it's {number}" for number in range(57)), lib.RMQ_SUBSCRIPTION_FILTER),
    ],
)  # fmt: skip
def test_kinds_of_expressions(kind: str, expression: str, wanted: int) -> None:
    assert finish(compiling(kind, expression)).kind == wanted
