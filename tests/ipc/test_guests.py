"""Rows of guests: they name what exists, and are data."""

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace

import ringmq
from ringmq.ipc import guests as module
from ringmq.ipc.guests import FOLDERS, Command, Guest, guests, is_missing, modules, parts
from ringmq.ipc.image_process import contents_of
from ringmq.ipc.named_functions import function_of
from ringmq.ipc.workers import WORKERS, WorkerTable
from ringmq.native import lib

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The folders of guests, to be changed."""
    changed = list(FOLDERS)
    monkeypatch.setattr(module, "FOLDERS", changed)
    guests.cache_clear()
    yield changed
    guests.cache_clear()


def texts(value: object) -> Iterator[str]:
    """All texts in a row."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from texts(part)


def test_each_folder_with_a_row_is_a_guest() -> None:
    found = {path.parent.relative_to(ROOT) for kind in ("*/guest.py", "*/*/guest.py") for path in ROOT.glob(kind)}
    found = {path for path in found if path.parts[0] not in ("build", "tests")}
    assert {f"ringmq.{'.'.join(path.parts)}" for path in found} == set(FOLDERS)


def test_every_function_of_a_row_exists() -> None:
    named = [text for text in texts(guests()) if text.startswith("ringmq.")]
    assert named and all(function_of(text) is not None for text in named)


def test_a_sentence_of_a_row_names_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("timer", "ringmq.timer.cli.commands:timer", help="Timers: see those that wait.", after="a:b")
    monkeypatch.setattr(module, "guests", lambda: (Guest("timer", commands=(command,)),))
    assert modules("commands") == ("ringmq.timer.cli.commands",)


def test_each_column_is_used_and_told() -> None:
    columns = [column for column in Guest._fields if column != "name"]
    assert not [column for column in columns if not any(getattr(guest, column) for guest in guests())]
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("### Guests")[2].partition("###")[0]
    walked = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert sorted(walked) == sorted(columns)
    assert not [path for cell in walked.values() for path in re.findall(r"`(.*?)`", cell) if not (ROOT / path).exists()]
    page = (ROOT / "docs" / "adding-a-service.md").read_text().partition("## What else")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\|[^|]*\| `(\w+)` \|", page, re.MULTILINE)) == sorted(columns)


def test_a_row_is_plain_data() -> None:
    """`ringmq --help` reads the rows, so their modules import the type of the row alone."""
    for folder in FOLDERS:
        path = importlib.import_module(f"{folder}.guest").__file__
        assert path is not None
        imports = [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.ImportFrom)]
        assert {node.module for node in imports} == {"__future__", "ringmq.ipc.guests"}, folder


def test_names_are_unique() -> None:
    names = [guest.name for guest in guests()]
    assert len(names) == len(FOLDERS) == len(set(names))
    commands = [(command.group, command.name) for guest in guests() for command in guest.commands]
    assert len(commands) == len(set(commands))
    metrics = [metric.name for table in parts("metric_table") for metric in table]
    assert len(metrics) == len(set(metrics))
    questions = [type_ for table in parts("questions") for type_ in table]
    assert len(questions) == len(set(questions)) and lib.RMQ_INBOX_TOPICS not in questions


def test_the_image_has_the_modules_of_columns_that_its_workers_walk() -> None:
    """A worker of an image loads no module of a later build."""
    rows = WORKERS.rows(1)
    assert {column for row in rows for column in row.walks} <= set(Guest._fields)
    loaded = set(contents_of(rows, "b").at_once)
    assert set(modules("questions", "runtime_info")) <= loaded
    assert {"ringmq.timer.admission", "ringmq.timer.copied_counts"} <= loaded, "rows in a row name functions, too"


def test_a_folder_that_is_not_there_is_no_guest(folders: list[str]) -> None:
    folders[:] = ["ringmq.not_there", "ringmq.timer", "ringmq.services.not_there"]
    assert [guest.name for guest in guests()] == ["timer"]


def test_what_is_left_of_a_deleted_folder_is_no_guest(
    folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git rm -r timer` leaves `timer/__pycache__`, which is a package to Python."""
    (tmp_path / "deleted" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(ringmq, "__path__", [*ringmq.__path__, str(tmp_path)])
    assert find_spec("ringmq.deleted") is not None
    folders[:] = ["ringmq.deleted", "ringmq.timer"]
    assert [guest.name for guest in guests()] == ["timer"] and is_missing("ringmq.deleted.worker")


def test_the_worker_of_a_guest_that_is_not_there_has_no_row(folders: list[str]) -> None:
    rows = [replace(WORKERS.row("delay"), module="ringmq.not_there.worker", asks=()), WORKERS.row("timer")]
    table = WorkerTable(WORKERS.row("read-0"), rows)
    assert [row.name for row in table] == ["read-0", "delay", "timer"]
    folders.append("ringmq.not_there")
    assert [row.name for row in table] == ["read-0", "timer"]
    assert [row.name for row in table.rows(1)] == ["read-0", "timer"]


def test_parts_are_those_of_the_rows_that_name_any(monkeypatch: pytest.MonkeyPatch) -> None:
    class Row(Guest):
        """A row with one column more."""

        part = "ringmq.ipc.guests:FOLDERS"

    class Empty(Guest):
        """A row that leaves it empty."""

        part = ""

    monkeypatch.setattr(module, "guests", lambda: (Empty("one"), Row("two")))
    assert list(parts("part")) == [FOLDERS]
