"""Results with names that clients chose."""

import json

import click
import pytest

from ringmq.cli.output import print_line, print_result, print_rows
from ringmq.cli.running import run

HOSTILE = "a\x1b]0;title\x07\u009b2Jb"
SHOWN = r"a\x1b]0;title\x07\x9b2Jb"


async def fails(text: str) -> None:
    raise ValueError(text)


def test_control_characters_do_not_come_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("table", [{"key": HOSTILE, "tags": [HOSTILE, "x\ny"]}], ["key", "tags"])
    assert capsys.readouterr().out == f"{'key':{len(SHOWN)}}  tags\n{SHOWN}  {SHOWN},x\\x0ay\n"
    print_result("table", {}, f"{HOSTILE}\nis done")
    assert capsys.readouterr().out == f"{SHOWN}\nis done\n"
    with pytest.raises(click.ClickException) as caught:
        run(fails(f"no message {HOSTILE}"))
    assert caught.value.message == f"no message {SHOWN}"


def test_json_has_the_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("json", [{"key": HOSTILE}], ["key"])
    print_result("json", {"key": HOSTILE}, "")
    print_line({"key": HOSTILE})
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u009b"} & set(out)
    assert out.count("\\u009b") == 3
    assert json.loads(out.splitlines()[-1]) == {"key": HOSTILE}
