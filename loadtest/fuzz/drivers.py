"""The C drivers: built with address and undefined-behaviour sanitizers, run seed after seed."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ringmq.loadtest.fuzz.golden import (
    filters,
    frames,
    plain_requests,
    records,
    send_backs,
    timers,
    write_inputs,
)

NATIVE = Path(__file__).parent / "native"
FLAGS = (
    "-std=gnu11", "-D_GNU_SOURCE", "-g1", "-pipe", "-Wall", "-Wextra", "-Werror",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
)  # fmt: skip
LIBRARIES = ("-ldeflate", "-luring", "-lpthread")
NOT_LINKED = "engine.c"
"""The drivers have an engine of their own (fake_engine.c)."""
SHARED = ("fuzz.c", "fuzz_answers.c", "fuzz_memory.c", "fake_engine.c")
BUILD_TIMEOUT_S = 600.0
ERROR_BYTES = 6000


class FuzzError(RuntimeError):
    """A driver was not built, or a rule was broken. The message holds the seed and the report."""


@dataclass(frozen=True, slots=True)
class Driver:
    """One driver. golden makes the valid inputs, link_flags are extra flags, counters must not be zero."""

    name: str
    golden: Callable[[Path], list[bytes]]
    counters: tuple[str, ...]
    link_flags: tuple[str, ...] = ()
    needs_folder: bool = False


DRIVERS = (
    Driver(
        "frames",
        frames,
        (
            "headers",
            "frames",
            "appends",
            "pulls",
            "cold",
            "redirected",
            "connections",
            "arrivals",
            "named",
            "unsent",
            "again",
            "faults",
        ),
        ("-Wl,--wrap=clock_gettime,--wrap=malloc,--wrap=calloc,--wrap=realloc",),
        needs_folder=True,
    ),
    Driver("copies", records, ("made", "no_room", "damaged", "inner_batch", "body", "nul", "properties", "edit")),
    Driver("send_backs", send_backs, ("plain", "sound", "unsound", "made", "left", "later", "dropped", "no_room")),
    Driver("plain_requests", plain_requests, ("read", "odd", "refused", "answers")),
    Driver("filters", filters, ("true", "false", "unknown", "throws", "refused")),
    Driver(
        "timers",
        timers,
        ("later", "passed", "refused", "full", "timed", "keyed", "taken", "left_out", "cut", "walked"),
    ),
    Driver("receiver", records, ("records", "links", "append_offset"), needs_folder=True),
)


def build(driver: Driver, sources: Path, folder: Path, objects: Path | None = None, level: str = "-O2") -> Path:
    """Compile the driver and the C core in `sources` into `folder` at a level of optimization. Return the program.

    Objects are kept in `objects`, by default in `folder`, under the digests of what they are made of.
    """
    objects = objects or folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    files = [path for path in sorted(sources.rglob("*.c")) if path.name != NOT_LINKED]
    files += [NATIVE / name for name in (*SHARED, f"fuzz_{driver.name}.c")]
    common = _common_digest(sources, level)
    flags = [level, f"-I{sources}", f"-I{NATIVE}"]
    made = [_compiled(source, common.copy(), flags, objects) for source in files]
    program, library = folder / f"fuzz_{driver.name}", folder / "core.a"
    library.unlink(missing_ok=True)
    _run(["ar", "rcs", str(library), *map(str, made[:-1])])  # the linker takes only needed objects of a library
    _run(["gcc", *FLAGS, *driver.link_flags, "-o", str(program), str(made[-1]), str(library), *LIBRARIES])
    return program


def _common_digest(sources: Path, level: str) -> "hashlib._Hash":
    """Of what goes into each object: compiler, flags and all headers."""
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, timeout=BUILD_TIMEOUT_S, check=True).stdout
    digest = hashlib.sha256(compiler + " ".join((*FLAGS, level)).encode())
    for path in (*sorted(sources.rglob("*.h")), *sorted(NATIVE.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest


def _compiled(source: Path, digest: "hashlib._Hash", flags: list[str], objects: Path) -> Path:
    digest.update(source.read_bytes())
    target = objects / f"{source.stem}.{digest.hexdigest()[:16]}.o"
    if not target.exists():
        for old in objects.glob(f"{source.stem}.*.o"):
            old.unlink(missing_ok=True)
        part = target.with_suffix(f".{os.getpid()}.part")
        _run(["gcc", *FLAGS, *flags, "-c", "-o", str(part), str(source)])
        part.rename(target)
    return target


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        raise FuzzError(f"{' '.join(command[:1] + command[-2:])}: {done.stderr[-ERROR_BYTES:]}")


def run(driver: Driver, program: Path, golden: Path, seed: int, inputs: int) -> dict[str, int]:
    """Run one process and return its counters.

    Raises FuzzError with the sanitizer's report, or for a counter that is zero.
    """
    with tempfile.TemporaryDirectory(prefix="ringmq-fuzz-", dir=_memory_folder()) as folder:
        corpus = Path(folder) / "golden"
        write_inputs(corpus, driver.golden(golden))
        command = [str(program), str(corpus), str(seed), str(inputs)]
        command += [str(Path(folder) / "store")] if driver.needs_folder else []
        if driver.needs_folder:
            (Path(folder) / "store").mkdir()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FuzzError(f"{driver.name}, seed {seed}, {inputs} inputs: {done.stderr[-ERROR_BYTES:]}")
    counted: dict[str, int] = {name: value for name, value in json.loads(done.stdout).items() if isinstance(value, int)}
    if missing := [name for name in driver.counters if not counted[name]]:
        raise FuzzError(f"{driver.name}, seed {seed}: {', '.join(missing)} stayed at zero: nothing is tried any more")
    return counted


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 1 << 28 else None
