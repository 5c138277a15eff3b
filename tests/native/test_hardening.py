"""The compiler's and linker's protections of the C core, in the file that this environment runs."""

import runpy
import subprocess
from pathlib import Path

import pytest

from ringmq import native
from tests.native.elf import faults_of

BUILD = Path(__file__).parents[2] / "native" / "build_native.py"
"""An installed package has no sources, so it cannot import this."""


def test_the_core_has_every_protection_and_no_run_path() -> None:
    assert faults_of(Path(native._native.__file__)) == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("distribution", [[], ["-D_FORTIFY_SOURCE=3", "-O2"], ["-Wp,-D_FORTIFY_SOURCE=3"]])
def test_a_distribution_s_own_flags_do_not_end_the_build(tmp_path: Path, distribution: list[str]) -> None:
    source = tmp_path / "source.c"
    source.write_text('#include <string.h>\nint main(void) { return (int) strlen(""); }\n')
    words = [
        "gcc",
        *distribution,
        *runpy.run_path(str(BUILD))["COMPILE"],
        "-c",
        str(source),
        "-o",
        str(tmp_path / "object"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
