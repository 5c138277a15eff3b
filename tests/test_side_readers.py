"""The side of a broker has one place: the word `tenure`. A reader of brokerRole would keep the side of the start."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUTSIDE = {"tests", "build", "loadtest", "examples"}
"""Folders that are no part of a broker. They configure brokers."""
PROPERTY = {
    "broker/config/broker_config.py",
    "broker/config/file_role.py",
    "broker/config/first_tenure.py",
    "broker/config/relations.py",
    "ha/settings.py",
    "ha/replica_policy.py",
    "ha/tenure_core.py",
    "ha/tenure_rules.py",
    "store/tenure_file.py",
}
"""The property: its table, its checks, the tenure of a start, and the policy of replication that it names as well."""
STARTS = {
    "broker/config/file_role.py",
    "broker/config/first_tenure.py",
    "broker/log_cut.py",
    "broker/server.py",
    "broker/stock_store_check.py",
    "doctor/examine.py",
    "doctor/gather_machine.py",
}
"""Modules that run before the watermark page exists, and checks of a broker that does not run."""
OF_PLANE = ("journal.c", "journal.h", "layout.h", "plane.c", "plane.h", "ports_layout.h", "watermarks_layout.h")
"""The same in C, with the owner of the journal that a tenure has."""
PAGE = {"ipc/plane.py", "ipc/tenure.py"}
"""Modules that name the word: the first store of it, and the two questions that readers ask."""


def is_outside(name: str) -> bool:
    """True for a folder that is no part of a broker, such as an environment."""
    return name in OUTSIDE or name.startswith(".")


def sources(suffixes: str) -> Iterator[tuple[str, str]]:
    """(path, text) of each source file of a broker."""
    for folder in sorted(path for path in ROOT.iterdir() if path.is_dir() and not is_outside(path.name)):
        for path in sorted(folder.rglob("*.*")):
            if path.suffix in suffixes.split():
                yield str(path.relative_to(ROOT)), path.read_text()


def users(pattern: str, suffixes: str = ".py") -> set[str]:
    """Paths of files that match."""
    return {path for path, text in sources(suffixes) if re.search(pattern, text)}


def test_no_other_module_reads_the_property() -> None:
    assert users(r"""\bbroker_role\b|["']brokerRole["']""") == PROPERTY


def test_only_a_start_asks_for_the_first_side() -> None:
    assert users(r"\b(first_tenure|starts_as_slave)\(") == STARTS


def test_readers_ask_two_questions_of_the_word() -> None:
    """So a state between the sides has one meaning for all of them."""
    assert users(r"\bmarks\.tenure\b|\bwatermarks\.tenure\b") == PAGE
    in_c = users(r"\btenure\b|\bRMQ_TENURE_[A-Z]+\b|\bbroker_role\b", ".c .h")
    assert in_c == {f"native/src/plane/{name}" for name in OF_PLANE}
