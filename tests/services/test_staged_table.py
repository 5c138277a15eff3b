"""The table of staged writes, when the log that it tells of is cut."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.log_cut import forget_behind
from ringmq.services.staged.staged_table import FILE

BORDER = 4096


def table_of(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "config" / FILE).read_text())
    return found


@pytest.mark.parametrize("border", [BORDER, 0])
def test_entries_behind_a_cut_are_forgotten_with_the_older_copy(tmp_path: Path, border: int) -> None:
    value = {"version": 1, "replayFrom": 9, "record": [BORDER, 100, 1]}
    (tmp_path / "config").mkdir()
    for name in (FILE, FILE + ".bak"):
        text = json.dumps({**value, "queries": [["below", 3, BORDER, 2], ["behind", 7, BORDER + 1, 0]]})
        (tmp_path / "config" / name).write_text(text)
    forget_behind(tmp_path, border)
    kept = [["below", 3, BORDER, 2]] if border else []
    assert table_of(tmp_path) == {"version": 1, "replayFrom": 0, "queries": kept}
    assert not (tmp_path / "config" / (FILE + ".bak")).exists()


@pytest.mark.parametrize("text", ["{broken", '{"queries": [["q"]]}', '{"queries": 7}', '{"queries": [["q", 1, "x"]]}'])
def test_what_cannot_be_read_is_forgotten(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / FILE).write_text(text)
    forget_behind(tmp_path, 0)
    assert table_of(tmp_path)["queries"] == []


def test_a_store_without_staged_writes_gets_no_table(tmp_path: Path) -> None:
    forget_behind(tmp_path, BORDER)
    assert not list(tmp_path.iterdir())
