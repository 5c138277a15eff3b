"""Entries of config files, and of tables from a master, one by one. An invalid one is left out and named, the others
count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ringmq.remoting import json_body
from ringmq.remoting.config_beans import DataVersion
from ringmq.remoting.errors import RemotingError

T = TypeVar("T")
LeaveOut = Callable[[str], None]
"""Callback for a line about an entry that is left out. The line lacks the file's name."""
NAME_CHARS_SHOWN = 80
LINES_MAX = 5
"""Log lines about the entries of one table that are left out."""
IMPOSSIBLE = (RemotingError, ValueError, TypeError, OverflowError)


def ignore(line: str) -> None:
    """The callback for a file whose entries have been named before."""


def joined(lines: Sequence[str]) -> str:
    """The first LINES_MAX lines as one, with the number of the others. "" without lines."""
    more = f"; {len(lines) - LINES_MAX} more" if len(lines) > LINES_MAX else ""
    return "; ".join(lines[:LINES_MAX]) + more


def possible_entries(
    table: dict[str, Any], what: str, read: Callable[[str, Any], T], leave_out: LeaveOut
) -> Iterator[tuple[str, T]]:
    """Yield (name, value) of each entry that `read` accepts. For the others `read` raises one of IMPOSSIBLE."""
    for name, entry in table.items():
        try:
            value = read(str(name), entry)
        except IMPOSSIBLE as error:
            leave_out(f"{what} {str(name)[:NAME_CHARS_SHOWN]!r} is left out: {error}")
            continue
        yield str(name), value


def version_of(value: dict[str, Any], now_ms: int, leave_out: LeaveOut) -> DataVersion:
    """The file's DataVersion. A new one if the file has no valid one."""
    if not value:
        return DataVersion(0, 0, now_ms)
    try:
        return DataVersion.from_json(json_body.mapping(value, "dataVersion"))
    except IMPOSSIBLE as error:
        leave_out(f"dataVersion begins again: {error}")
        return DataVersion(0, 0, now_ms)
