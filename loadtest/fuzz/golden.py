"""Golden inputs of the fuzz: recorded frames of RocketMQ, and records of a recorded store."""

import gzip
import json
import struct
import tarfile
from collections.abc import Iterable
from pathlib import Path

FRAME_BYTES_MAX = 60_000
RECORD_BYTES_MAX = 20_000
FILTERS = (
    "a = 5", "a > 1 AND b < 2.5", "a IN ('x', 'y', 'zz') OR b NOT IN ('1')", "a CONTAINS 'bc' AND NOT b STARTSWITH 'x'",
    "a IS NULL OR c IS NOT NULL", "a BETWEEN 1 AND 10", "a NOT BETWEEN -5 AND 3000000000", "(a = b) = TRUE",
    "a ENDSWITH 'c' OR a NOT ENDSWITH 'b' OR a NOT CONTAINS 'x' OR a NOT STARTSWITH 'q'", "NOT a OR b", "-a > -(b > c)",
    "a = 1 AND " * 9 + "b", "a = 1 OR (" * 40 + "b >= 1e3" + ")" * 40,
)  # fmt: skip
MESSAGES: tuple[tuple[tuple[bytes, bytes], ...], ...] = (
    ((b"a", b"5"), (b"b", b"2.25"), (b"c", b"true")), ((b"a", b"abc"), (b"a", b"1"), (b"b", b"1")),
    ((b"b", b"0x1.8p3"),),
    ((b"a", b"2147483648"), (b"b", b" 1e400 ")), ((b"a", "٣".encode()), (b"c", b"NaN")), (), ((b"TAGS", b"x" * 400),),
)  # fmt: skip
SEND_BACK = {"offset": "900", "group": "G", "delayLevel": "0", "unitMode": "false", "maxReconsumeTimes": "16"}
END = {
    "producerGroup": "G", "tranStateTableOffset": "7", "commitLogOffset": "900", "commitOrRollback": "8",
    "fromTransactionCheck": "true", "msgId": "0A", "topic": "T",
}  # fmt: skip
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


def timers(golden: Path) -> list[bytes]:
    """Return records of the timer topic."""
    found = []
    with tarfile.open(golden / "timer" / "store-pending-running.tar.xz") as tar:
        for member in tar:
            file = tar.extractfile(member) if "commitlog/" in member.name and member.isfile() else None
            if file is not None:
                found += [record for record in _records(file.read()) if b"TIMER_OUT_MS" in record]
    return found


def _requests(code: int, fields: dict[str, str]) -> list[bytes]:
    """Return the request in each encoding."""
    from ringmq.remoting.command import RemotingCommand, SerializeType, encode_frame

    return [encode_frame(RemotingCommand.request(code, fields, serialize_type=kind)) for kind in SerializeType]


def plain_requests(golden: Path) -> list[bytes]:
    """Return requests 36 and 37 in each encoding, and recorded ones of consumers that pop."""
    recorded = [frame for frame in frames(golden, requests_only=True) if b'"code":2000' in frame[:200]]
    return [*_requests(36, SEND_BACK), *_requests(37, END), *recorded]


def send_backs(golden: Path) -> list[bytes]:
    """Return requests 36, each with its length in front and a record behind."""
    requests = _requests(36, SEND_BACK)
    found = records(golden)[::7]
    return [
        struct.pack("=I", len(request)) + request + record
        for request, record in ((requests[number % len(requests)], record) for number, record in enumerate(found))
    ]


def filters(golden: Path) -> list[bytes]:
    """Return compiled conditions, each with its length in front and the properties of a message behind."""
    from ringmq.filters.compiler import compile_filter

    programs = [compile_filter(expression).encode() for expression in FILTERS]
    properties = [b"".join(b"%b\x01%b\x02" % pair for pair in message) for message in MESSAGES]
    return [struct.pack("=I", len(program)) + program + text for program in programs for text in properties]


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
