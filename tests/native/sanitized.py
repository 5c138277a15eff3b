"""Drivers in C of this folder, built with address and undefined-behaviour sanitizers."""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "native" / "src"


def build_driver(name: str, folder: Path) -> Path:
    """The program `driver` in `folder`, made of the driver file `name`, which includes the sources that it drives."""
    program = folder / "driver"
    command = [
        "gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCE}", str(HERE / name),
        "-o", str(program),
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=110)
    return program
