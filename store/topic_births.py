"""`<root>/config/ringmqTopicBirths.json`: from where in the log a topic is a new one of its name.

Commit log offset by topic, of topics that were deleted while the log held messages of theirs. Records below it are of
the earlier topic: a start must not take them for records whose units were lost. Each entry is there before the name is
free again, follows the log's end where that is cut, and goes when the log begins behind it.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from ringmq.store import layout, markers
from ringmq.store.config_files import ConfigFileError

BIRTHS_FILE = "ringmqTopicBirths.json"


def read_births(root: Path) -> dict[str, int]:
    """Commit log offsets by topic. ConfigFileError for a file that cannot be one of ours, OSError."""
    path = root / layout.CONFIG / BIRTHS_FILE
    try:
        births = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigFileError(f"{path}: not a table of log offsets by topic ({error})") from error
    if type(births) is not dict or any(type(offset) is not int or offset < 0 for offset in births.values()):
        raise ConfigFileError(f"{path}: not a table of log offsets by topic")
    return births


def write_births(root: Path, births: Mapping[str, int]) -> None:
    """Leave word durably; without any, take the file away. Raises OSError."""
    data = json.dumps(dict(births)).encode() if births else None
    markers.replace_or_remove(root / layout.CONFIG / BIRTHS_FILE, data)


def within(births: Mapping[str, int], min_offset: int, end_offset: int) -> dict[str, int]:
    """What is left to say about a log that reaches from `min_offset` to `end_offset`: what it will hold behind its end
    is of the new topics."""
    return {topic: min(offset, end_offset) for topic, offset in births.items() if min(offset, end_offset) > min_offset}
