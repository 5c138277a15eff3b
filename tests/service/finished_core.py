"""A C compiler that compiles nothing: `python finished_core.py CORE ARGUMENTS OF CC` links CORE, a built C core.

The service is then installed from the sources with the core that all other tests run with, and no minute goes into
another build of it.
"""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def compiler_of(core: Path) -> str:
    """This compiler as a value of CC."""
    return shlex.join([sys.executable, "-S", str(Path(__file__).resolve()), str(core)])


def compile_nothing(core: Path, words: Sequence[str]) -> None:
    """Leave an empty object file, or the core where the object files would be linked."""
    made = Path(words[words.index("-o") + 1])
    if "-c" in words:
        made.touch()
    else:
        shutil.copyfile(core, made)


if __name__ == "__main__":
    compile_nothing(Path(sys.argv[1]), sys.argv[2:])
