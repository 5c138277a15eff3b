"""Groups of test files: one worker runs a group from its first test to its last.

A file is a group. The folders that share servers (`tests/server_pool.py`) are two groups together: what uses shared
brokers, and what starts brokers of its own and shares the stock client. Files that use one Spark session are a group.
"""

from pathlib import Path

SHARING_FOLDERS = ("client", "conformance")
SHARING_GROUP, PAIRS_GROUP = "servers", "pairs of servers"
PAIRS = frozenset(
    f"conformance/test_{name}.py"
    for name in ("disk_both_ways", "halves_both_ways", "name_servers", "replication", "slave_reads", "take_over")
)
"""Two workers take less time than one, and cost one more start of the stock client."""
SPARK_GROUP = "one Spark session"
SPARK_FILES = frozenset(
    f"spark_bridge/test_{name}.py"
    for name in ("jvm_made_stores", "jvm_source", "open_messages", "sink", "spark", "stream")
)
"""A worker starts a session, with its virtual machine, for all of them."""
STOCK_USERS = frozenset(
    [
        *(f"client/test_{name}.py" for name in ("consumer_servers", "examples", "producer_servers", "real_servers")),
        *("client/test_stock_features.py", "conformance/test_assignments.py"),
        *("conformance/test_replies.py", "conformance/test_sdk_beside_stock.py", "conformance/test_sdk_consumer.py"),
    ]
)
"""Files of the first group that use the shared stock broker. They run first, and it is closed behind them: at rest it
takes a tenth of a CPU."""
LONGEST_FIRST = (
    SHARING_GROUP,
    PAIRS_GROUP,
    SPARK_GROUP,
    "service/test_boot.py",
    "drill/test_crash_points.py",
    "test_spark_examples.py",
    "packaging/test_distributions.py",
    "native/test_crash_points.py",
    "store/test_store_task.py",
    "loadtest/test_fuzz.py",
    "spark_bridge/test_stream_drill.py",
    "spark_bridge/test_local_cluster.py",
    "spark_bridge/test_session.py",
    "services/test_staged_writes.py",
    "suite/test_suite.py",
    "test_example.py",
    "without_timers/test_tree.py",
    "loadtest/test_spark_bench.py",
)


def group_of(path: Path, root: Path) -> str:
    """The part of the suite that a test file below the folder `tests` of `root` belongs to; one worker runs it."""
    tests = root / "tests"
    if tests not in path.parents:
        return path.as_posix()
    relative = path.relative_to(tests)
    if relative.as_posix() in SPARK_FILES:
        return SPARK_GROUP
    if relative.parts[0] not in SHARING_FOLDERS:
        return relative.as_posix()
    return PAIRS_GROUP if relative.as_posix() in PAIRS else SHARING_GROUP


def uses_stock(path: Path, root: Path) -> bool:
    """True for a file below the folder `tests` of `root` that uses the shared stock broker."""
    tests = root / "tests"
    return tests in path.parents and path.relative_to(tests).as_posix() in STOCK_USERS
