"""Programs that are forked from the image of programs: they are as if they had been started by exec."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from ringmq.loadtest.load import program
from ringmq.loadtest.load.program import BY_EXEC, READ_AT_START, ROOM_BYTES, Program
from ringmq.loadtest.load.running import wait_ended
from tests.loadtest import program_probe

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
PIPE = subprocess.PIPE
PROBE = (sys.executable, "-m", program_probe.MODULE)


@pytest.fixture(scope="module", autouse=True)
def image() -> "Iterator[program._Image]":
    """An image for this file, which also forks the probe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "PACKAGES", ("tests.",))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        patch.setenv("PYTHONHASHSEED", "7")
        patch.setattr(program, "_STATE", program._state(os.environ))
        made = program._Image()
        patch.setattr(program, "_IMAGE", made)
        for _ in range(2):
            with paused() as started:
                assert not is_forked(started), "nobody has asked for an image"
        program.fork_programs()
        with paused() as first:
            assert not is_forked(first)
        yield made
        made.close()


def probe(*words: str, **options: Any) -> tuple[int, list[str], str]:
    """Status, lines of output and errors of the probe."""
    with Program([*PROBE, *words], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, **options) as process:
        output, errors = process.communicate("a line\n", TIMEOUT_S)
    return process.returncode, output.splitlines(), errors


@contextlib.contextmanager
def paused(**options: Any) -> "Iterator[Program]":
    """A probe that has printed everything and pauses."""
    with Program([*PROBE, "pause"], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, **options) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        while "pauses" not in process.stdout.readline():
            assert process.poll() is None
        try:
            yield process
        finally:
            process.kill()


def is_forked(process: "subprocess.Popen[Any]") -> bool:
    """True if it has the memory of the image: much room for its words."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[46]) - int(fields[45]) > ROOM_BYTES


@pytest.mark.parametrize(
    "options",
    [{}, {"start_new_session": True, "umask": 0o27, "cwd": "/"}, {"env": {"ONE": "ä\udc80", "TWO": "x" * 2000}}],
    ids=["plain", "session, umask and folder", "environment"],
)
def test_a_forked_program_finds_what_one_by_exec_finds(options: dict[str, Any]) -> None:
    environment = {name: value for name, value in os.environ.items() if name.startswith(READ_AT_START)}
    environment |= options.get("env", os.environ)
    forked = probe("0", "word with spaces", **(options | {"env": environment}))
    by_exec = probe("0", "word with spaces", **(options | {"env": {**environment, BY_EXEC: "1"}}))
    assert forked[1][2:] == by_exec[1][2:] == ["a line", "at exit"]
    assert (forked[0], forked[2]) == (by_exec[0], by_exec[2]) == (0, "to standard error\n")
    one, other = json.loads(forked[1][0]), json.loads(by_exec[1][0])
    assert other["environment"].pop(BY_EXEC) == "1"
    other["first environment"].remove(f"{BY_EXEC}=1")
    assert one == other
    (number, is_forked), (other_number, is_other_forked) = forked[1][1].split(), by_exec[1][1].split()
    assert (is_forked, is_other_forked) == ("True", "False")
    assert number != other_number
    assert one["parent"] == os.getpid()


def test_nothing_of_one_program_is_in_the_next(tmp_path: Path) -> None:
    before = probe("0")[1]
    probe("0", env={**os.environ, "OTHER": "1"}, cwd=tmp_path, umask=0, start_new_session=True)
    after = probe("0")[1]
    assert (after[0], after[2:]) == (before[0], before[2:])
    assert after[1] != before[1], "a random number"


@pytest.mark.parametrize(("end", "status"), [("0", 0), ("7", 7), ("256", 0), ("text", 1), ("error", 1)])
def test_it_ends_as_one_by_exec_ends(end: str, status: int) -> None:
    forked, by_exec = probe(end), probe(end, env={**os.environ, BY_EXEC: "1"})
    assert forked[0] == by_exec[0] == status
    assert forked[2].splitlines()[-1] == by_exec[2].splitlines()[-1]
    assert "at exit" in forked[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this run ignores the signal, as one in the background of a shell does, so its children do")
    with paused() as process:
        assert is_forked(process) and process.poll() is None
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == -number


@contextlib.contextmanager
def an_ignored_signal() -> Iterator[dict[str, Any]]:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    yield {}
    signal.signal(signal.SIGUSR2, before)


@contextlib.contextmanager
def a_lower_limit() -> Iterator[dict[str, Any]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    yield {}
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def a_descriptor() -> Iterator[dict[str, Any]]:
    reading, writing = os.pipe()
    yield {"pass_fds": (reading,)}
    os.close(reading)
    os.close(writing)


@contextlib.contextmanager
def variables(**names: str) -> Iterator[dict[str, Any]]:
    yield {"env": {**os.environ, **names}}


@pytest.mark.parametrize(
    "given",
    [
        an_ignored_signal,
        a_lower_limit,
        a_descriptor,
        partial(variables, TZ="UTC+3"),
        partial(variables, **{BY_EXEC: "1"}),
    ],
    ids=["signal", "limit", "descriptor", "variable of the C library", "switched off"],
)
def test_what_no_order_can_name_is_given_by_exec(
    given: "Callable[[], contextlib.AbstractContextManager[dict[str, Any]]]",
) -> None:
    with given() as options, paused(**options) as process:
        assert not is_forked(process)
    with paused() as process:
        assert is_forked(process)


def test_a_terminal_is_given_by_exec() -> None:
    mine, other = os.openpty()
    try:
        with Program([*PROBE, "0"], stdin=PIPE, stdout=other, stderr=PIPE) as process:
            assert not is_forked(process)
            process.communicate(b"\n", TIMEOUT_S)
    finally:
        os.close(mine)
        os.close(other)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        probe("0", cwd=tmp_path / "none")


def test_the_death_of_the_image_touches_no_program(image: "program._Image") -> None:
    with paused() as process:
        first = image._process
        assert first is not None
        first.kill()
        first.wait(TIMEOUT_S)
        with paused() as other:
            assert is_forked(other)
            assert image._process is not first
        assert process.poll() is None
        process.terminate()
        assert process.wait(TIMEOUT_S) == -signal.SIGTERM


STARTS_ONE = """
import os, subprocess, sys
from ringmq.loadtest.load import program
program.fork_programs()
program._IMAGE._is_wanted = True
command = [sys.executable, "-m", "ringmq.cli.main", "namesrv", "--port", "0"]
server = program.Program(command, stdout=subprocess.PIPE)
server.stdout.readline()
print(program._IMAGE._process.pid, server.pid, flush=True)
if input() == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_image_ends_with_its_parent_and_programs_go_on(end: str) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE], stdin=PIPE, stdout=PIPE, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        image, server = (psutil.Process(int(word)) for word in parent.stdout.readline().split())
        parent.communicate(f"{end}\n", TIMEOUT_S)
        assert not wait_ended([image]), "it ends with its parent"
        assert wait_ended([server], 0) == [server]
        server.terminate()
        assert not wait_ended([server])
