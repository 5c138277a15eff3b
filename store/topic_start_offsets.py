"""`<root>/config/ringmqTopicBirths.json`: the log offset from which on a topic is the new one of its name.

Commit log offset by topic, for topics that were deleted while the log held messages of theirs. Records below the
offset are of the earlier topic, and a start must not take them for records with lost units. An entry is written
before the name is free again. It follows the log's end when the log is cut, and is removed when the log begins behind
it.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from ringmq.store import layout, markers
from ringmq.store.config_files import ConfigFileError, read_standard_json

START_OFFSETS_FILE = "ringmqTopicBirths.json"


def read_start_offsets(root: Path) -> dict[str, int]:
    """Return commit log offsets by topic. Raises ConfigFileError for a file that cannot be RingMQ's."""
    path = root / layout.CONFIG / START_OFFSETS_FILE
    try:
        start_offsets = read_standard_json(path)
    except FileNotFoundError:
        return {}
    if type(start_offsets) is not dict or any(
        type(offset) is not int or offset < 0 for offset in start_offsets.values()
    ):
        raise ConfigFileError(f"{path}: holds no table of log offsets by topic", [path])
    return dict(start_offsets)


def write_start_offsets(root: Path, start_offsets: Mapping[str, int]) -> None:
    """Write the offsets durably. Without offsets remove the file. Raises OSError."""
    data = json.dumps(dict(start_offsets)).encode() if start_offsets else None
    markers.replace_or_remove(root / layout.CONFIG / START_OFFSETS_FILE, data)


def within(start_offsets: Mapping[str, int], min_offset: int, end_offset: int) -> dict[str, int]:
    """Return the entries that matter to a log from `min_offset` to `end_offset`.

    Entries behind the end move to the end: all later records are of the new topics.
    """
    return {
        topic: min(offset, end_offset)
        for topic, offset in start_offsets.items()
        if min(offset, end_offset) > min_offset
    }
