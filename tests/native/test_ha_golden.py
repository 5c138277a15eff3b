"""The HA writer over a stock 5.3.3 master's log, with what its recorded slave said: the recorded bytes come out."""

import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from ha_kit import HaKit

from tests.ha.golden_streams import FILE_BYTES, GOLDEN, master_log


def recorded(name: str, connection: str) -> Iterator[tuple[str, bytes]]:
    """(direction, bytes of one read) of one connection, in order."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            if row.get("conn") == connection and "hex" in row:
                yield row["dir"], bytes.fromhex(row["hex"])


def frames_of(stream: bytes) -> list[tuple[int, int]]:
    """(offset, length) of every whole frame with a body."""
    found, at = [], 0
    while at + 12 <= len(stream):
        offset, length = struct.unpack_from(">QI", stream, at)
        at += 12 + length
        if length and at <= len(stream):
            found.append((offset, length))
    return found


@pytest.mark.parametrize(
    ("name", "connection", "start", "end_at_first"),
    [
        ("classic-async", "ha-1", 0, 21_768),  # an empty slave, the log in its first file, over two file ends
        ("classic-async", "ha-2", 241_096, 243_549),  # back after a cut in mid-stream, over a file end
        ("classic-async", "ha-3", 351_622, 396_514),  # back after a stop: two frames up to the file end
        ("classic-sync", "ha-1", 393_216, 433_476),  # an empty slave at the newest file, then one frame a message
        ("classic-sync", "ha-2", 452_080, 452_411),  # back after kill -9
    ],
)
def test_a_recorded_slave_gets_the_recorded_bytes(
    tmp_path: Path, name: str, connection: str, start: int, end_at_first: int
) -> None:
    log = master_log()
    ha = HaKit(tmp_path, segment_bytes=FILE_BYTES)
    ha.append(log[:end_at_first])
    reads = recorded(name, connection)
    direction, said = next(reads)
    assert direction == "c2s"
    requested = int.from_bytes(said[:8], "big")
    slave = ha.follow(requested, start=start)
    ha.turn_until(lambda: slave.end() == end_at_first, "what was there at first has come")
    theirs = reports = b""
    for direction, data in reads:
        if direction == "c2s":
            reports += data
            continue
        theirs += data
        ends = [offset + length for offset, length in frames_of(theirs)]
        for end in (end for end in ends if end > len(ha.written)):  # one frame there, one frame here
            ha.append(log[len(ha.written) : end])
            ha.turn_until(lambda: slave.end() == len(ha.written), f"our stream reaches {len(ha.written)}")
    assert [(offset, len(body)) for offset, body in slave.frames() if body] == frames_of(theirs)
    assert slave.body() == log[start : len(ha.written)]
    slave.socket.send(reports)
    last = int.from_bytes(reports[-8:], "big")
    ha.turn_until(lambda: ha.row(slave).reported_offset == last, "every recorded report is believed")
    ha.close()
