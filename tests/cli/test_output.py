"""Results with names that clients chose."""

import io
import json
import os
import pty
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from ringmq.cli.consume import _show as show_consumed
from ringmq.cli.doctor import _shown
from ringmq.cli.main import LazyGroup, main
from ringmq.cli.output import print_body, print_json, print_line, print_result, print_rows, say, say_again
from ringmq.cli.running import run
from ringmq.cli.stored_messages import Stored, print_message
from ringmq.cli.top_view import _TOPIC_COLUMNS, TopicRow, table
from ringmq.doctor.finding import ok
from ringmq.doctor.render import render
from ringmq.remoting.message import MessageExt

HOSTILE = "a\x1b]0;title\x07\u009b2J\u202e\u2028\u2066b"
SHOWN = r"a\x1b]0;title\x07\x9b2J\u202e\u2028\u2066b"


async def fails(text: str) -> None:
    raise ValueError(text)


def test_control_characters_do_not_come_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("table", [{"key": HOSTILE, "tags": [HOSTILE, "x\ny"]}], ["key", "tags"])
    assert capsys.readouterr().out == f"{'key':{len(SHOWN)}}  tags\n{SHOWN}  {SHOWN},x\\x0ay\n"
    print_result("table", {}, f"{HOSTILE}\nis done")
    assert capsys.readouterr().out == f"{SHOWN}\\x0ais done\n"
    say(f"{HOSTILE}\nError: forged")
    say_again(f"{HOSTILE}\r", is_last=True)
    out, err = capsys.readouterr()
    assert (out, err) == (f"{SHOWN}\\x0aError: forged\n", f"\r{SHOWN}\\x0d\n")


def test_errors_are_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        run(fails(f"no message {HOSTILE}"))

    monkeypatch.setattr(LazyGroup, "get_command", lambda self, context, name: failing)
    done = CliRunner().invoke(main, ["failing"])
    assert (done.exit_code, done.output) == (1, f"Error: no message {SHOWN}\n")


def test_json_has_the_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("json", [{"key": HOSTILE}], ["key"])
    print_result("json", {"key": HOSTILE}, "")
    print_json({"key": HOSTILE})
    print_line({"key": HOSTILE})
    out = capsys.readouterr().out
    assert not set(HOSTILE) - {*"a]0;title2Jb"} & set(out)
    assert out.count("\\u009b") == out.count("\\u202e") == 4
    assert json.loads(out.splitlines()[-1]) == {"key": HOSTILE}


BODY = f"{HOSTILE}\n\tnext".encode() + b"\xff"
MESSAGE = MessageExt("T", BODY, {"KEYS": "k\nError: forged", "TAGS": "t\n\u202e"}, broker_name="b")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_bodies_are_raw_in_pipes_and_files_alone(
    is_terminal: bool, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    shown = f"{SHOWN}\n\tnext\\xff".encode() if is_terminal else BODY
    print_body(BODY, f"[{HOSTILE}] ")
    assert capfdbinary.readouterr().out == f"[{SHOWN}] ".encode() + shown + b"\n"
    show_consumed(MESSAGE, "table", verbose=True)
    head = b"[b/0 0] keys k Error: forged tags t\\x0a\\u202e "
    assert capfdbinary.readouterr().out == head + shown + b"\n"
    print_message("table", Stored("b", "127.0.0.1:1", MESSAGE), MESSAGE.topic)  # a report for people, wherever it goes
    *lines, properties, body = capfdbinary.readouterr().out.split(b"\n", 9)
    assert (properties, body) == (
        b"properties: {'KEYS': 'k\\nError: forged', 'TAGS': 't\\n\\u202e'}", f"body: {SHOWN}\n\tnext\\xff\n".encode(),
    )  # fmt: skip
    assert b"key: k\\x0aError: forged" in lines


def test_a_terminal_gets_no_raw_body() -> None:
    """A real one: `isatty` decides."""
    master, terminal = pty.openpty()
    code = "from ringmq.cli.output import print_body; print_body(b'a\\x1b[2J')"
    try:
        subprocess.run([sys.executable, "-c", code], stdout=terminal, check=True, timeout=60)
        assert os.read(master, 1000) == b"a\\x1b[2J\r\n"
    finally:
        os.close(master)
        os.close(terminal)


def test_screens_show_names_as_they_are() -> None:
    rows = (TopicRow(f"[red]{HOSTILE}[/]", 0.0, 0.0, 1), TopicRow("plain", 0.0, 0.0, 1))
    console = Console(width=200, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(table("Topics", rows, _TOPIC_COLUMNS))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"[red]{SHOWN}[/]" in text and "plain" in text


def test_findings_of_the_doctor_are_printable() -> None:
    finding = ok("store", HOSTILE, f"folder {HOSTILE}", "a\nmeaning")
    lines = list(render([_shown(finding)], 300, verbose=True, paint=lambda text, colour: text))
    assert sum(SHOWN in line for line in lines) == 1
    assert not any(character in "".join(lines) for character in "\x1b\x07\x9b\u202e\u2028\u2066")
