"""Golden inputs of the fuzz: recorded frames of RocketMQ, and records of a recorded store."""

import gzip
import json
import struct
import tarfile
from collections.abc import Iterable
from pathlib import Path

FRAME_BYTES_MAX = 60_000
RECORD_BYTES_MAX = 20_000
_MAGICS = (0xDAA320A7, 0xDAA320AB)
_RECORD_BYTES_MIN = 91
_FLAG_RESPONSE = 1


def frames(golden: Path, *, requests_only: bool = False) -> list[bytes]:
    """Return recorded frames without repetitions, in a fixed order."""
    found: dict[bytes, None] = {}
    for path in sorted((golden / "wire").rglob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in map(json.loads, lines):
                data = bytes.fromhex(line.get("hex", ""))
                if 8 <= len(data) <= FRAME_BYTES_MAX and not (requests_only and line.get("dir") != "c2s"):
                    found[data] = None
    return list(found)


def records(golden: Path) -> list[bytes]:
    """Return records of the recorded CommitLog."""
    found = []
    with tarfile.open(golden / "store-basic" / "store-basic.tar.gz") as tar:
        for member in tar:
            file = tar.extractfile(member) if "/commitlog/" in member.name and member.isfile() else None
            if file is not None:
                found += _records(file.read())
    return found


def _records(log: bytes) -> list[bytes]:
    found, at = [], 0
    while at + 8 <= len(log):
        size, magic = struct.unpack_from(">II", log, at)
        if magic not in _MAGICS or size < _RECORD_BYTES_MIN:
            break
        if size <= RECORD_BYTES_MAX:
            found.append(log[at : at + size])
        at += size
    return found


def write_inputs(path: Path, inputs: Iterable[bytes]) -> None:
    """Write the inputs in the form of the C drivers: each with its length in front, in machine order."""
    path.write_bytes(b"".join(struct.pack("=I", len(data)) + data for data in inputs))
