"""Filters of pops: tags by their hashes, conditions by the properties, compiled once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import Stage, receipts

from ringmq.native import lib
from ringmq.pop.filters import Filters, compile_expression


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


def test_a_full_table_begins_anew() -> None:
    filters = Filters()
    for number in range(lib.RMQ_POP_FILTERS_MAX + 1):
        filters.put("TAG", f"t{number}")
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
    assert compile_expression(kind, expression).kind == wanted
