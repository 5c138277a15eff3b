"""Builds `ringmq.native._native` with cffi in API mode from the headers and sources in `src/`.

The text between `cdef-begin` and `cdef-end` marks of each header is what Python sees: the C header is the
only place where a function or constant is declared.
"""

import os
import re
import zlib
from pathlib import Path

from cffi import FFI

SOURCE_DIR = Path(__file__).parent / "src"
BLOCK = re.compile(r"/\* cdef-begin \*/(.*?)/\* cdef-end \*/", re.S)
LAYOUTS = [
    "plane/watermarks_layout.h", "plane/roles_layout.h", "plane/settings_layout.h", "plane/tables_layout.h",
    "plane/metrics_layout.h", "plane/ports_layout.h", "plane/asks_layout.h", "plane/replication_layout.h",
    "plane/admission_layout.h", "plane/filter_layout.h", "plane/half_shares_layout.h",
]  # fmt: skip
FIRST = [*LAYOUTS, "plane/layout.h"]
"""The others build on them, and each on those before it."""
HEADERS = FIRST + sorted({str(path.relative_to(SOURCE_DIR)) for path in SOURCE_DIR.rglob("*.h")} - set(FIRST))
PLANE = [
    *FIRST, "base/siphash.h", "base/name_hash.h", "plane/ring.h", "plane/port.h", "plane/port.c",
    "plane/journal.h", "plane/journal.c",
    "plane/settings_word.h", "plane/invariant.h", "plane/plane.h", "plane/plane.c", "plane/asks.h", "plane/asks.c",
    "plane/plane_tables.c", "admission/admission_rules.c", "plane/filter_table.c", "metrics/pull_stats.c",
]  # fmt: skip
"""Say what lies where in a plane and how it is found there: processes with other texts keep out of one another's."""
PLANE_VERSION = zlib.crc32(b"".join((SOURCE_DIR / name).read_bytes() for name in PLANE))
DEFINES = [("_GNU_SOURCE", None), ("RMQ_PLANE_VERSION", f"0x{PLANE_VERSION:08x}u")]
if os.environ.get("RINGMQ_CRASH_POINTS") == "1":
    DEFINES.append(("RMQ_CRASH_POINTS", None))  # test build only: named points where a worker may kill itself

COMPILE = [
    "-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden",
    "-fstack-protector-strong", "-Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=2",
]  # fmt: skip
"""A distribution's flags may name another level of FORTIFY, by -D or by -Wp,-D, which comes behind every -D. A second
definition is an error, so -U comes before ours. Level 3 is an error where glibc is older than 2.34."""
LINK = ["-Wl,-z,relro,-z,now"]


def declarations() -> str:
    """Return the cffi text: each header's marked blocks, layouts first."""
    return "\n".join(block for name in HEADERS for block in BLOCK.findall((SOURCE_DIR / name).read_text()))


def paths(pattern: str) -> list[str]:
    """Return the source files that match, from here where that is possible: archives may hold no absolute paths."""
    found = sorted(SOURCE_DIR.rglob(pattern))
    return [str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path) for path in found]


ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source(
    "ringmq.native._native",
    "".join(f'#include "{name}"\n' for name in HEADERS),
    sources=paths("*.c"),
    depends=paths("*.h"),
    include_dirs=[str(SOURCE_DIR)],
    define_macros=DEFINES,
    extra_compile_args=[*COMPILE, *(["-march=x86-64-v2"] if os.uname().machine == "x86_64" else [])],
    extra_link_args=LINK,
    libraries=["uring", "deflate"],
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
