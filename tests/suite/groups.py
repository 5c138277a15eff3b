"""Groups of test files: one worker runs a group from its first test to its last.

A file is a group. The folders that share servers (`tests/server_pool.py`) are one group together.
"""

from pathlib import Path

SHARING_FOLDERS = ("client", "conformance")
SHARING_GROUP = "servers"
LONGEST_FIRST = (
    SHARING_GROUP,
    "spark_bridge/test_stream_drill.py",
    "loadtest/test_spark_bench.py",
    "spark_bridge/test_sink.py",
    "test_spark_examples.py",
    "drill/test_crash_points.py",
    "ha/test_policies.py",
)


def group_of(path: Path, root: Path) -> str:
    """The part of the suite that a test file below the folder `tests` of `root` belongs to; one worker runs it."""
    tests = root / "tests"
    if tests not in path.parents:
        return path.as_posix()
    relative = path.relative_to(tests)
    return SHARING_GROUP if relative.parts[0] in SHARING_FOLDERS else relative.as_posix()
