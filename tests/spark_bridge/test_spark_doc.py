"""docs/spark.md says what the code says: options, columns, settings; its code is code and its examples exist."""

import ast
import re
from pathlib import Path

import pytest

from ringmq.spark_bridge import option_table
from ringmq.spark_bridge.schema import COLUMNS, KAFKA_COLUMNS
from ringmq.spark_bridge.sink.columns import COLUMN_TYPES
from ringmq.spark_bridge.sink.options import WRITE_OPTIONS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "spark.md").read_text()


def section(title: str) -> str:
    """The text between a heading and the next one of its level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/spark.md has no section {title!r}"
    return found[1]


def rows_of(text: str) -> list[str]:
    """The lines of tables whose first cell is `code`."""
    return [line for line in text.splitlines() if line.startswith("| `")]


def test_every_read_option_stands_there_as_the_code_has_it() -> None:
    assert rows_of(section("Options of a read")) == option_table.markdown_rows()


def test_every_write_option_and_column_stands_there() -> None:
    rows = rows_of(section("Writing"))
    options = option_table.markdown_rows(WRITE_OPTIONS)
    assert rows[-len(options) :] == options
    described = [name for row in rows[: -len(options)] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert described == list(COLUMN_TYPES)


def test_every_column_stands_there_with_its_type() -> None:
    rows = [re.match(r"\| `(\w+)` \| ([^|]+) \|", row) for row in rows_of(section("Columns"))]
    assert [(row[1], row[2]) for row in rows if row] == [(name, column[0]) for name, column in COLUMNS.items()]
    assert len(KAFKA_COLUMNS) == 7  # "the first seven are read unless told otherwise"


@pytest.mark.spark
def test_every_setting_of_a_session_is_explained() -> None:
    from pyspark_ringmq.session import SETTINGS

    rows = [re.match(r"\| `([\w.]+)` \| ([\w.]+) \|", row) for row in rows_of(section("The session"))]
    assert {row[1]: row[2] for row in rows if row} == dict(SETTINGS)


def test_its_code_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) > 6
    for block in blocks:
        ast.parse(block)


def test_what_it_links_to_is_there() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if not link.startswith("http")]
    assert links
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]
