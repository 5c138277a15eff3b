"""Lines made natively are those that plain Python makes."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.broker.exporter import series_lines
from ringmq.broker.exporter.label_rows import LabelCache, LabelRows
from ringmq.broker.exporter.series_lines import SeriesLines

TEXTS = st.text(max_size=40)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def plain(columns: Sequence[tuple[str, str]], labels: Sequence[str], values: Sequence[Sequence[int]]) -> bytes:
    """The reference."""
    return "".join(
        f"{head}{text}{tail}{value}\n"
        for text, row in zip(labels, values, strict=False)
        for (head, tail), value in zip(columns, row, strict=True)
    ).encode()


def rows_of(labels: Sequence[str]) -> LabelRows:
    return LabelCache().rows(np.arange(len(labels)), lambda number: labels[number])


@settings(max_examples=60)
@given(st.data(), st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), st.lists(TEXTS, max_size=30))
def test_as_plain_python(data: st.DataObject, columns: list[tuple[str, str]], labels: list[str]) -> None:
    count = data.draw(st.integers(0, len(labels)))
    row = st.lists(INT64, min_size=len(columns), max_size=len(columns))
    values = data.draw(st.lists(row, min_size=count, max_size=count))
    numbers = np.array(values, np.int64).reshape(count, len(columns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_lines, "PIECE_BYTES", data.draw(st.integers(1, 2000)))
        pieces = [bytes(piece) for piece in SeriesLines(columns, rows_of(labels), numbers).pieces()]
    assert b"".join(pieces) == plain(columns, labels, values)
    assert all(pieces), "an empty piece would be the end of a chunked answer"


@pytest.mark.parametrize("value", [0, 9, 10, -1, (1 << 63) - 1, -(1 << 63)])
def test_the_ends_of_the_range(value: int) -> None:
    (piece,) = SeriesLines([("a{", "} ")], rows_of(['x="1"']), np.array([[value]])).pieces()
    assert bytes(piece) == f'a{{x="1"}} {value}\n'.encode()


def test_texts_are_asked_for_once_and_joined_for_the_ids_at_hand() -> None:
    asked: list[int] = []

    def text_of(number: int) -> str:
        asked.append(number)
        return f"<{number}>"

    book = LabelCache()
    first = book.rows(np.array([3, 1]), text_of)
    assert (first.text, first.ends.tolist()) == (b"<3><1>", [3, 6])
    assert book.rows(np.array([3, 1]), text_of) is first
    assert book.rows(np.array([1, 2]), text_of).text == b"<1><2>"
    assert asked == [3, 1, 2]
    assert len(book.rows(np.array([], np.int64), text_of)) == 0
