"""Pages of the answers to 21 and 201, by the rules of stock after 5.3.3 (`subTopicConfigTable`, `subGroupTable`)."""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.remoting.config_beans import DataVersion
from ringmq.remoting.json_text import load_json

PAGE_ENTRIES = 2000
"""splitMetadataSize"""


def page_of(
    names: Sequence[str], version: DataVersion, sequence: int | None, page_max: int | None, asked_version: str | None
) -> Sequence[str] | None:
    """The names of one page of a sorted table. None for the whole table.

    The client already has `sequence` entries of the version in `asked_version` (JSON text). If the version differs, it
    gets the first page. A request without all three fields, as 5.3.3 sends it, gets the whole table.
    """
    if sequence is None and page_max is None and asked_version is None:
        return None
    size = min(PAGE_ENTRIES, PAGE_ENTRIES if page_max is None else max(1, page_max))
    first = max(0, sequence or 0) if _is(version, asked_version) else 0
    return names[first : first + size]


def _is(version: DataVersion, text: str | None) -> bool:
    try:
        value = load_json((text or "{}").encode())
        return bool(value) and DataVersion.from_json(value) == version
    except (ValueError, AttributeError):
        return False
