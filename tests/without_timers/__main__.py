"""Run the tests that do not name timers in a tree without timers: `python -m tests.without_timers [PYTEST_ARGS]`.

The tree is made anew in build/without-timers/tree. Tests that need more than this machine (stock RocketMQ, Spark), or
that take long (drills, times), say nothing more about a guest, so they are left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.without_timers.tree import BUILD, build_core, copy_tree, environment, files_that_name_timers

LEFT_OUT = "not stock and not spark and not drill and not upgrade and not timed"


def main(pytest_args: list[str]) -> int:
    """Return pytest's status."""
    tree = BUILD / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    build_core(copy_tree(tree, with_tests=True))
    ignored = [f"--ignore={path}" for path in files_that_name_timers(tree)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", LEFT_OUT, *ignored, *pytest_args]
    return subprocess.run(command, cwd=tree, env=environment(tree), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
