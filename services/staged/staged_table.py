"""`<root>/config/ringmqStagedWrites.json`: the last micro-batch of each staging writer, a snapshot of the log.

    {"version": 1, "replayFrom": 12, "record": [commit log offset, bytes, CRC-32], "queries":
     [[query id, batch id, commit log offset behind what was stored for it, chunks that were lost, time of the
       decision in ms], ...]}

The worker `services` owns the file (services/staged). The snapshot is true of one history of the log alone, so code
that cuts the log calls `forget_behind` first. `record`, the newest record in the snapshot, reveals a log that others
changed.
"""

import json
from pathlib import Path

from ringmq.store import layout, markers
from ringmq.store.config_files import ConfigFileError, load_config

FILE = "ringmqStagedWrites.json"


def forget_behind(root: Path, commit_log_offset: int) -> None:
    """Reduce the file to the entries that are true of the log below this offset. Raises OSError.

    Without `record` the rest is read from the log again. Only entries whose records retention has deleted are
    believed.
    """
    path = root / layout.CONFIG / FILE
    backup = path.with_name(FILE + ".bak")
    if not (path.exists() or backup.exists()):
        return
    try:
        queries = load_config(root, FILE).get("queries", ())
        kept = [[str(entry[0]), *map(int, entry[1:])] for entry in queries if int(entry[2]) <= commit_log_offset]
    except (ConfigFileError, TypeError, ValueError, LookupError):
        kept = []  # recovery ignores such a file, too
    markers.replace_file(path, json.dumps({"version": 1, "replayFrom": 0, "queries": kept}).encode())
    backup.unlink(missing_ok=True)
    markers.sync_directory(path.parent)
