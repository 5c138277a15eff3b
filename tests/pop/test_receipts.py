"""Receipts: C and Python read the same of any text, and write the same."""

import random

import pytest

from ringmq.native import ffi, lib
from ringmq.pop.receipts import Receipt, read_receipt, receipt_refusal, write_receipt

GOOD = "120 1700000000000 60000 3 0 broker-a 2 121"
PIECES = (
    "0", "-1", "+7", "007", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "2147483648", "999",
    "", " ", "x", "1.0", "\u0663", "broker-a", "b\xe9", "a;b", "\t", "1 2", "  ", "\0",
)  # fmt: skip


def native(text: str) -> Receipt | None:
    """The receipt as C reads it."""
    data, out = text.encode(), ffi.new("struct rmq_pop_receipt *")
    if not lib.rmq_pop_receipt_read(data, len(data), out):
        return None
    broker = data[out.broker.at : out.broker.at + out.broker.length].decode()
    return Receipt(out.start_offset, out.pop_time_ms, out.invisible_ms, out.revive_queue, broker)


@pytest.mark.parametrize(
    "text",
    [
        GOOD, GOOD + " 4711", "1 2 3 4 5 b", "1 2 3 4 5 ", "1 2 3 4 5", "1 2 3 4  b 0 0", "", " ", "a b",
        "1  2 3 4 5 b", " 1 2 3 4 5 b", "1 2 3 2147483648 0 b", "1 2 3 -2147483648 0 b",
    ],
)  # fmt: skip
def test_known_texts(text: str) -> None:
    assert native(text) == read_receipt(text)


def test_any_text() -> None:
    rng, read = random.Random(7), 0
    for _ in range(20_000):
        fields = GOOD.split(" ")
        for _ in range(rng.randrange(3)):
            fields[rng.randrange(len(fields))] = rng.choice(PIECES)
        text = " ".join(fields[: rng.randrange(4, 10)])
        found = native(text)
        assert found == read_receipt(text), repr(text)
        read += found is not None
    assert 2_000 < read < 18_000


def test_a_written_receipt_is_read() -> None:
    made = Receipt(120, 1_700_000_000_000, 60_000, 3, "broker-a")
    assert write_receipt(made, 0, 2, 121) == GOOD
    assert read_receipt(GOOD) == made


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, "split extraInfo is null"), ("a b", "getBrokerName fail, extraInfoStrs length 2"),
        ("", "getBrokerName fail, extraInfoStrs length 1"),
        ("1 2 3 4 5 ", "getBrokerName fail, extraInfoStrs length 5"),
        ("x 2 3 4 5 b", 'NumberFormatException: For input string: "x"'),
        ("1 2 3 4294967296 5 b", 'NumberFormatException: For input string: "4294967296"'),
        ("1 2 3 4  b", "has an empty field"),
    ],
)  # fmt: skip
def test_refusals_are_those_of_stock(text: str | None, wanted: str) -> None:
    error = receipt_refusal(text)
    assert error.code == 1
    assert wanted in str(error)
