"""Advice of the program after damage, followed to the letter."""

import re
import shlex
import subprocess
from collections.abc import Callable
from typing import TypeVar

from click.testing import CliRunner

from ringmq.cli.main import main

T = TypeVar("T")
COMMAND = re.compile(r"\brun(?: as root)?: (.+)$")
GIVEN_UP = re.compile(r"given up: the log from (\d+) to (\d+), (\d+) bytes; queues name (\d+) messages there")
STEPS_MAX = 4


class Refused(Exception):
    """What a start has said."""


def command_in(text: str) -> str:
    """The only command line of a text. It is the end of a line."""
    commands = [found[1] for line in text.splitlines() if (found := COMMAND.search(line))]
    assert len(commands) == 1, f"not one command: {text}"
    return commands[0]


def follow(command: str) -> str:
    """Run a command line and return what it has printed. A plan of a repair must come to the same status."""
    if not command.startswith("ringmq "):
        return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True, timeout=60).stdout
    words = shlex.split(command)[1:]
    if words[:2] == ["store", "repair"]:
        plan = CliRunner().invoke(main, [*words, "--dry-run"])
        assert plan.exit_code == 0, plan.output
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.output


def started_by_advice(start: Callable[[], T], steps: list[str]) -> T:
    """Start, and follow the advice of each refusal until the start succeeds. `steps` gets the texts on the way."""
    for _ in range(STEPS_MAX):
        try:
            return start()
        except Refused as refused:
            steps.append(str(refused))
            steps.append(follow(command_in(str(refused))))
    raise AssertionError(f"the advice leads to no start: {steps}")


def given_up(steps: list[str]) -> list[tuple[int, int]]:
    """The ranges of the log that repairs have given up."""
    return [(int(first), int(end)) for text in steps for first, end, _, _ in GIVEN_UP.findall(text)]
