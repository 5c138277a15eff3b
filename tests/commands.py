"""The `ringmq` command in a process of its own, forked from the image of programs (`ringmq.loadtest.load.program`)."""

import os
import subprocess
import sys

from ringmq.loadtest.load.program import Program

RINGMQ = (sys.executable, "-m", "ringmq.cli.main")
TIMEOUT_S = 60


def run_ringmq(*words: str, lines: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with `lines` as standard input. Returns its status, output and errors."""
    command, pipe = [*RINGMQ, *words], subprocess.PIPE
    stdin = subprocess.DEVNULL if lines is None else pipe
    with Program(
        command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **environment}
    ) as program:
        try:
            output, errors = program.communicate(lines, TIMEOUT_S)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(command, program.returncode, output, errors)
