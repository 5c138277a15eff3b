"""A C compiler for builds that tests make beside the installed one: `python plain_cc.py [KIND] ARGUMENTS OF CC`.

Without optimisation and debug information it takes two fifths of the time. `--protected` keeps the protections of the
libc, which need optimisation (-O1). `--sanitized` adds the sanitizers of addresses and of undefined behaviour. The
warnings are errors here as there, but for the sanitizers, whose own code has some.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

PROTECTED, SANITIZED = "--protected", "--sanitized"
SANITIZERS = ("-g1", "-O1", "-Wno-error", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
              "-fno-sanitize-recover=all")  # fmt: skip
LEVELS = ("-O", "-g")
PROTECTIONS = ("-Wp,-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE")


def compiler(*, protected: bool) -> str:
    """This compiler as a value of CC."""
    return shlex.join([sys.executable, str(Path(__file__).resolve()), *([PROTECTED] if protected else [])])


def plain(words: Sequence[str]) -> list[str]:
    """The command of the C compiler."""
    kind = words[0] if words and words[0] in (PROTECTED, SANITIZED) else ""
    left_out = LEVELS if kind == PROTECTED else LEVELS + PROTECTIONS
    kept = [word for word in words[bool(kind) :] if not word.startswith(left_out)]
    more = {PROTECTED: ("-O1",), SANITIZED: SANITIZERS}.get(kind, ("-O0",))
    return ["cc", *kept, *more]


if __name__ == "__main__":
    command = plain(sys.argv[1:])
    os.execvp(command[0], command)
