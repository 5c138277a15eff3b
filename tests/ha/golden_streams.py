"""The recorded streams of a stock pair (tests/golden/ha): what its master sent on each connection, and its log."""

import gzip
import json
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "ha"
FILE_BYTES = 131_072
LOG_END = 456_578
"""End of the master's last record."""


@dataclass(frozen=True)
class Link:
    """One connection: the slave's first report, and what the master said, read by read."""

    first_report: int
    sent: tuple[bytes, ...]


@cache
def links(recording: str) -> tuple[Link, ...]:
    """The connections of `classic-async` or `classic-sync`, in order."""
    reports: dict[str, bytes] = {}
    sent: dict[str, list[bytes]] = {}
    with gzip.open(GOLDEN / f"{recording}.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            if "hex" not in line:
                continue
            data = bytes.fromhex(line["hex"])
            if line["dir"] == "c2s":
                reports.setdefault(line["conn"], data)
            else:
                sent.setdefault(line["conn"], []).append(data)
    return tuple(Link(int.from_bytes(reports[name][:8], "big"), tuple(parts)) for name, parts in sent.items())


@cache
def master_log() -> bytes:
    """The master's files, one behind the other: offset 0 on."""
    with tarfile.open(GOLDEN / "classic-master-commitlog.tar.gz") as tar:
        members = sorted((entry for entry in tar if entry.isfile()), key=lambda entry: entry.name)
        files = [tar.extractfile(entry) for entry in members]
        return b"".join(file.read() for file in files if file is not None)
