"""Drivers in C of this folder, built with address and undefined-behaviour sanitizers."""

import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "native" / "src"
ENGINES = (pytest.param("io_uring", marks=pytest.mark.io_uring), "epoll")


def build_driver(name: str, folder: Path, *libraries: str) -> Path:
    """The program `driver` in `folder`, made of the driver file `name`, which includes the sources that it drives."""
    program = folder / "driver"
    command = [
        "gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g1", "-pipe", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCE}", str(HERE / name),
        "-o", str(program), *libraries,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=110)
    return program


def scenes_of(name: str) -> list[str]:
    """The scenes of a driver that plays them on an engine."""
    found = re.findall(r'^    \{"(\w+)", \w+\},$', (HERE / name).read_text(), re.MULTILINE)
    assert found
    return found


def play_scene(driver: Path, engine: str, scene: str, prefix: tuple[str, ...] = ()) -> None:
    """Play one scene. Its output is the line of the rule that it broke, or a sanitizer's report."""
    done = subprocess.run([*prefix, driver, engine, scene], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "played\n"), done.stderr[-4000:]
