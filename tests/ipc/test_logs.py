"""The form of log lines in Python, which C repeats, and the level that holds while a process runs."""

import json
import logging
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.ipc import logs
from ringmq.ipc.log_lines import FIELD_CHARS_MAX, LEVELS, Style, format_line
from ringmq.ipc.logs import LineHandler, configure, is_journal, level_number, refusal_line
from ringmq.native import ffi, lib

STYLES = [Style(is_json, is_journal) for is_json in (False, True) for is_journal in (False, True)]
AT_MS = 1_795_745_527_123
AT = "2026-11-27T02:12:07.123Z"
LINES = {
    Style(): f"{AT} WARNING control a text",
    Style(is_journal=True): "<4>WARNING control a text",
    Style(is_json=True): f'{{"time":"{AT}","level":"WARNING","worker":"control","text":"a text"}}',
    Style(is_json=True, is_journal=True): (
        f'<4>{{"time":"{AT}","level":"WARNING","worker":"control","text":"a text"}}'
    ),
}
PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


def c_line(style: Style, time_ms: int, level: int, worker: str, text: str, room: int = 1 << 16) -> str:
    """The line of the C twin, without its newline."""
    into = ffi.new("char[]", room)
    flags = lib.RMQ_LOG_JSON * style.is_json | lib.RMQ_LOG_JOURNAL * style.is_journal
    length = lib.rmq_log_format(into, room, flags, time_ms, level, worker.encode(), text.encode())
    line = bytes(ffi.buffer(into, length))
    assert length <= room and line.endswith(b"\n")
    return line[:-1].decode(errors="surrogateescape")


@pytest.mark.parametrize("style", STYLES)
def test_the_form_of_a_line(style: Style) -> None:
    assert format_line(style, AT_MS, logging.WARNING, "control", "a text") == LINES[style]
    assert c_line(style, AT_MS, logging.WARNING, "control", "a text") == LINES[style]


@pytest.mark.parametrize("name", PRIORITIES)
def test_each_level_has_its_priority(name: str) -> None:
    level = getattr(logging, name)
    line = format_line(Style(is_journal=True), AT_MS, level, "w", "t")
    assert line == f"<{PRIORITIES[name]}>{name} w t"
    assert line == c_line(Style(is_journal=True), AT_MS, level, "w", "t")
    assert getattr(lib, f"RMQ_LOG_{name}") == level


@pytest.mark.parametrize("style", STYLES)
def test_c_writes_the_same_lines(style: Style) -> None:
    dice = random.Random(7)
    near = [*range(0x610, 0x625), *range(0x2000, 0x2080)]  # with the controls of direction
    letters = [
        *map(chr, [*range(1, 0x100), *near]),
        "\u20ac",
        "\U0001f600",
        '"',
        "\\",
        "\n",
        "\n",
        "\x1b",
        "\x9b",
        "\x7f",
    ]
    for _ in range(400):
        text = "".join(dice.choices(letters, k=dice.randrange(80)))
        worker = "".join(dice.choices(letters, k=dice.randrange(10)))
        time_ms = dice.randrange(253_402_300_800_000)
        level = dice.choice([*range(10, 60, 10), 15, 35])
        assert c_line(style, time_ms, level, worker, text) == format_line(style, time_ms, level, worker, text)


def test_the_calendar_of_c() -> None:
    day_ms = 86_400_000
    for day in [*range(800), *range(10_900, 11_100), *range(47_400, 47_600), 2_932_896]:
        for time_ms in (day * day_ms, day * day_ms + day_ms - 1):
            assert c_line(Style(), time_ms, 20, "w", "t") == format_line(Style(), time_ms, 20, "w", "t")


def test_a_line_of_c_is_cut_to_its_room() -> None:
    line = c_line(Style(), AT_MS, 20, "w", "x" * 5000, room=100)
    assert line == format_line(Style(), AT_MS, 20, "w", "x" * 5000)[:99]


@pytest.mark.parametrize("style", STYLES)
def test_no_text_imitates_a_line_or_drives_a_terminal(style: Style) -> None:
    text = f"topic T\n{AT} CRITICAL control all is lost\r\x1b[2J\x9b2J\x7f\u2028\u202e\u2066\u061c"
    lines = format_line(style, AT_MS, logging.INFO, "control", text).split("\n")
    if style.is_json:
        (line,) = lines
        assert line.isprintable()
        assert json.loads(line.removeprefix("<6>"))["text"] == text
    else:
        prefix = "<6>" if style.is_journal else ""
        assert (
            lines[1]
            == f"{prefix}    {AT} CRITICAL control all is lost\\x0d\\x1b[2J\\x9b2J\\x7f\\u2028\\u202e\\u2066\\u061c"
        )


def test_fields() -> None:
    fields = {"peer": "10.0.0.7:51344", "before": None, "after": {"perm": 6, "a b": "ü"}, "note": "two words", "no": ""}
    line = format_line(Style(), AT_MS, logging.INFO, "control", "audit", fields)
    assert line == (
        f'{AT} INFO control audit peer=10.0.0.7:51344 before=null after={{"perm":6,"a b":"ü"}} note="two words" no=""'
    )
    assert json.loads(format_line(Style(is_json=True), AT_MS, logging.INFO, "control", "audit", fields)) == {
        "time": AT, "level": "INFO", "worker": "control", "text": "audit", **fields,
    }  # fmt: skip
    long = format_line(Style(is_json=True), AT_MS, logging.INFO, "w", "t", {"after": {"x": "y" * 10_000}})
    assert len(json.loads(long)["after"]) == FIELD_CHARS_MAX + 3


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The logging of this process is as before, behind the test."""
    root, ringmq = logging.getLogger(), logging.getLogger("ringmq")
    before = root.handlers[:], root.level, ringmq.level, sys.excepthook
    yield
    root.handlers[:], root.level, ringmq.level, sys.excepthook = before
    for logger in (root, ringmq):
        logger.setLevel(logger.level)


def written(tmp_path: Path, level: list[int], style: Style = STYLES[0]) -> tuple[logging.Logger, Path]:
    """A logger that writes to a file, with the lowest level of the list's last item."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    logger = logging.Logger("ringmq.test")
    logger.addHandler(LineHandler("w", style, lambda: level[-1], descriptor))
    return logger, path


def test_the_level_is_live_and_never_hides_the_worst(tmp_path: Path) -> None:
    level = [logging.INFO]
    logger, path = written(tmp_path, level)
    logger.debug("one")
    logger.info("two")
    level.append(logging.ERROR)
    logger.warning("three")
    level.append(1000)
    logger.critical("four")
    level.append(0)
    logger.debug("%s", "five")
    assert [line.split()[1:] for line in path.read_text().splitlines()] == [
        ["INFO", "w", "two"], ["CRITICAL", "w", "four"], ["DEBUG", "w", "five"],
    ]  # fmt: skip


def test_a_trace_is_part_of_its_record(tmp_path: Path) -> None:
    logger, path = written(tmp_path, [0], Style(is_json=True))
    try:
        raise KeyError("planted")
    except KeyError:
        logger.exception("it failed")
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["text"].startswith("it failed\nTraceback") and "KeyError: 'planted'" in line


def test_text_that_is_no_utf8_is_written(tmp_path: Path) -> None:
    logger, path = written(tmp_path, [0])
    logger.info("a name \udcff")
    assert path.read_bytes().endswith(b"a name \\udcff\n")


def test_configured_processes_log_what_nobody_catches(restored: None, capfd: pytest.CaptureFixture[str]) -> None:
    configure("w", is_json=False)
    try:
        raise ZeroDivisionError("planted")
    except ZeroDivisionError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    first, *rest = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"\S+Z CRITICAL w ends by a defect: planted", first)
    assert rest and all(line.startswith("    ") for line in rest)


def test_the_journal_is_the_stream_that_systemd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w") as file:
        status = os.fstat(file.fileno())
        own = f"{status.st_dev}:{status.st_ino}"
        assert is_journal({"JOURNAL_STREAM": own}, file.fileno())
        assert not is_journal({"JOURNAL_STREAM": "1:2"}, file.fileno())
        assert not is_journal({}, file.fileno())
    assert not is_journal({"JOURNAL_STREAM": own}, 1 << 20)
    assert refusal_line("no store") == "Error: no store"
    monkeypatch.setattr(logs, "is_journal", lambda environment: True)
    assert refusal_line("no store") == "<2>CRITICAL supervisor no store"


def test_the_values_of_the_property_are_levels() -> None:
    assert [level_number(name) for name in LEVELS] == [10, 20, 30, 40]
