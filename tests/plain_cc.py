"""A C compiler for builds that tests make beside the installed one: `python plain_cc.py [--protected] ARGUMENTS OF CC`.

Without optimisation and debug information it takes two fifths of the time. `--protected` keeps the protections of the
libc, which need optimisation (-O1). The warnings are errors here as there.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

PROTECTED = "--protected"
LEVELS = ("-O", "-g")
PROTECTIONS = ("-Wp,-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE")


def compiler(*, protected: bool) -> str:
    """This compiler as a value of CC."""
    return shlex.join([sys.executable, str(Path(__file__).resolve()), *([PROTECTED] if protected else [])])


def plain(words: Sequence[str]) -> list[str]:
    """The command of the C compiler."""
    protected = words[:1] == [PROTECTED]
    left_out = LEVELS if protected else LEVELS + PROTECTIONS
    kept = [word for word in words[protected:] if not word.startswith(left_out)]
    return ["cc", *kept, "-O1" if protected else "-O0"]


if __name__ == "__main__":
    command = plain(sys.argv[1:])
    os.execvp(command[0], command)
