"""Entries of config files one by one. An invalid entry is left out and named, the others count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ringmq.remoting import json_body
from ringmq.remoting.config_beans import DataVersion
from ringmq.remoting.errors import RemotingError

T = TypeVar("T")
LeaveOut = Callable[[str], None]
"""Callback for a line about an entry that is left out. The line lacks the file's name."""
NAME_CHARS_SHOWN = 80
IMPOSSIBLE = (RemotingError, ValueError, TypeError, OverflowError)


def ignore(line: str) -> None:
    """The callback for a file whose entries have been named before."""


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
