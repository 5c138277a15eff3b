"""What README and docs tell people to type is taken by the command line as it is."""

import re
import shlex
from pathlib import Path

import click
import pytest

from ringmq.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def documented() -> list[tuple[str, str]]:
    """(page, command line) of every `ringmq ...` in a shell block or in backticks."""
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = "\n".join(re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL))
        lines = re.findall(r"^ringmq .*$", blocks, re.MULTILINE)
        lines += re.findall(r"`(ringmq [^`\n]*)`", text)
        found += [(page.name, line) for line in lines]
    return found


def parse(line: str, tmp_path: Path) -> None:
    """Let click parse the line down to the last command; nothing is run. Raises click.UsageError."""
    words = shlex.split(line, comments=True)[1:]
    words = [word for word in words if word not in ("&", "...")]
    (tmp_path / "broker.conf").touch()
    (tmp_path / "namesrv.conf").touch()
    words = [re.sub(r"^(DIR|/tmp/my-store)$", str(tmp_path), word) for word in words]
    words = [str(tmp_path / word) if word in ("broker.conf", "namesrv.conf") else word for word in words]
    command: click.Command = main
    context = click.Context(main)
    while words and isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        if found is None:
            raise click.UsageError(f"{words[0]} is no command")
        command, words = found, words[1:]
    if words:  # else the text only names the command
        command.make_context("ringmq", words)


@pytest.mark.parametrize(("page", "line"), documented())
def test_a_documented_command_line_can_be_parsed(page: str, line: str, tmp_path: Path) -> None:
    assert page
    if line not in ("ringmq --help", "ringmq bench --help"):
        parse(line, tmp_path)


def test_commands_named_in_plain_text_are_there() -> None:
    context = click.Context(main)
    groups = {name: main.get_command(context, name) for name in main.list_commands(context)}
    for page in [*PAGES, ROOT / "monitoring" / "alerts.yml"]:
        for name, below in re.findall(r"ringmq ([a-z]+) ([a-z]+)", page.read_text()):
            group = groups.get(name)
            assert not isinstance(group, click.Group) or below in group.commands, f"{page.name}: ringmq {name} {below}"


def test_the_readme_shows_the_commands_it_is_about() -> None:
    shown = {shlex.split(line, comments=True)[1] for page, line in documented() if page == "README.md"}
    assert {"serve", "produce", "consume", "store"} <= shown


def test_a_wrong_line_would_be_found(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError):
        parse("ringmq produce Greetings 'hello'", tmp_path)
