"""docs/adding-a-service.md shows the code that runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-service.md").read_text()
BLOCKS = re.findall(r"```(?:python|c)\n(.*?)```", PAGE, re.DOTALL)


def test_every_block_of_code_names_its_file() -> None:
    assert len(BLOCKS) >= 4
    assert all(re.match(r"(# [\w/]+\.py|/\* [\w/]+\.c \*/)\n", block) for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_file_holds_the_block(block: str) -> None:
    name, _, code = block.partition("\n")
    assert code.strip() and code in (ROOT / name.strip("#/* ")).read_text()


def test_every_file_is_there() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|h|c))`", PAGE)
    assert len(named) > 5 and not [name for name in named if not (ROOT / name).exists()]


def test_the_example_is_as_short_as_the_page_says() -> None:
    lines = len((ROOT / "tests/services/echo_service.py").read_text().splitlines())
    assert lines <= 150 and f"in {lines} lines" in PAGE
