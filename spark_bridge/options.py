"""Options of the data source, by their Spark names (case does not matter), checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringmq.spark_bridge.schema import COLUMNS

RANGE_BYTES = 128 << 20  # what Spark gives a task of a file source
KNOWN = (
    "store",
    "subscribe",
    "columns",
    "includeSystemTopics",
    "startingLogOffset",
    "endingLogOffset",
    "maxPartitionBytes",
    "minPartitions",
)


class OptionError(ValueError):
    """An option is missing, unknown or impossible; the message names it and what it may be."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. Offsets are commit-log offsets; None leaves the end to the store's readable bound."""

    store: Path
    topics: tuple[str, ...] = ()  # empty: all
    columns: tuple[str, ...] = tuple(COLUMNS)
    include_system_topics: bool = False
    starting_log_offset: int = 0
    ending_log_offset: int | None = None
    range_bytes: int = RANGE_BYTES
    ranges_min: int = 1


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the data source's options. Raises `OptionError`."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in KNOWN}
    unknown = [name for name in options if name.lower() not in known and name.lower() != "path"]
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; known are {', '.join(KNOWN)}")
    store = given.get("store") or given.get("path")
    if not store:
        raise OptionError("option store (the folder of the store) is missing")
    root = Path(store)
    if not (root / "commitlog").is_dir():
        raise OptionError(
            f"option store: {root} has no commitlog folder on this host; the tasks read the log's files, so they "
            "must run where these are"
        )
    ending = given.get("endinglogoffset")
    return ReadOptions(
        root.resolve(),
        tuple(_words(given.get("subscribe", ""))),
        parse_columns(_words(given.get("columns", ""))),
        _switch("includeSystemTopics", given.get("includesystemtopics", "false")),
        _number("startingLogOffset", given.get("startinglogoffset", "0"), 0),
        None if ending is None else _number("endingLogOffset", ending, 0),
        _number("maxPartitionBytes", given.get("maxpartitionbytes", str(RANGE_BYTES)), 1),
        _number("minPartitions", given.get("minpartitions", "1"), 1),
    )


def parse_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Check column names; none means all. Raises `OptionError`."""
    for name in names:
        if name not in COLUMNS:
            raise OptionError(f"column {name!r} is not one of {', '.join(COLUMNS)}")
    if len(set(names)) != len(names):
        raise OptionError("a column is named twice")
    return tuple(names) or tuple(COLUMNS)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(name: str, text: str, lowest: int) -> int:
    if not text.isdigit() or int(text) < lowest:
        raise OptionError(f"option {name}={text!r} is not a whole number from {lowest} on")
    return int(text)


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name}={text!r} is neither true nor false")
    return text.lower() == "true"
