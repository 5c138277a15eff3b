"""The replication matrix: its cells, its table and plots, and one cell measured for real."""

import argparse
import csv
import json
import os
import re
import time
from pathlib import Path
from typing import cast

import pytest

from ringmq.loadtest.bench.rows import Context, context_of
from ringmq.loadtest.matrix import main as matrix
from ringmq.loadtest.matrix.cells import all_cells, cell_of, run_cell
from ringmq.loadtest.matrix.machine_stats import MachineStats, disk_counters, loopback_counter, machine_stats
from ringmq.loadtest.matrix.report import draw, write_csv
from ringmq.loadtest.measuring.command import document
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import RINGMQ, Measurement, failed
from ringmq.loadtest.measuring.rounds import Session

ROOT = Path(__file__).resolve().parents[2]
DISKSTATS = """\
 254       0 vda 10 0 80 5 700 3 16000 900 0 1000 905 0 0 0 0
 254       1 vda1 1 0 8 1 70 3 1600 90 0 100 95 0 0 0 0
"""
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 12345      10    0    0    0     0          0         0    12345      10    0    0    0
"""


def test_the_matrix_has_108_different_cells() -> None:
    cells = all_cells()
    assert len(cells) == len({cell.name for cell in cells}) == 108
    assert len(matrix.BENCH.parse(["--topics", "1,8", "--bodies", "100"]).cells) == 12


def test_counters_are_read_by_name() -> None:
    assert disk_counters(DISKSTATS, os.makedev(254, 1)) == (70, 1600, 90)
    assert disk_counters(DISKSTATS, os.makedev(8, 0)) == (0, 0, 0)
    assert loopback_counter(NET_DEV) == 12345
    assert loopback_counter("") == 0


def test_rates_are_differences_over_time(tmp_path: Path) -> None:
    before = MachineStats(10.0, 100, 0, 50, 1.0, 0)
    after = MachineStats(12.0, 140, 8_000_000, 130, 2.0, 6_000_000)
    wanted = {"disk_mb_per_s": 4.0, "disk_wait_ms": 2.0, "io_wait_cpu": 0.5, "loopback_mb_per_s": 3.0}
    assert before.until(after) == wanted
    assert machine_stats(tmp_path).at_s > 0


@pytest.fixture
def report(tmp_path: Path) -> Document:
    """One cell that counts, one that does not, one that was not run."""
    good, bad, left = (
        cell_of(1024, consume, "async + async", topics) for consume, topics in ((0, 8), (1, 16), (1, 64))
    )
    values = {"messages_per_s": 12346.0, "p99": 2500.0, "master_cpu": 0.25}
    runs = {
        good.name: {RINGMQ: [Measurement(values)]},
        bad.name: {RINGMQ: [failed("read back: 9 of 10, 0 out of order")]},
    }
    header = {"fdatasync_per_s": 3800.0}
    session = Session([good, bad, left], lambda number: (turn for turn in ()), header=lambda: header, runs=runs)
    return document(session, tmp_path)


def test_a_cell_that_was_not_correct_says_so_in_the_table(report: Document, tmp_path: Path) -> None:
    text = matrix.BENCH.text(report)
    assert "| 1 KiB | produce | async + async | 8 | 12,346 | - | - | 2.50 |" in text
    assert "| 1 KiB | produce, consume | async + async | 16 | - |" in text and "- | 0 of 1 |" in text
    assert "read back: 9 of 10" in text and "3,800 fdatasync/s" in text
    assert matrix.BENCH.faults(report) == [f"{row['name']}: no run counts" for row in report["rows"][1:]]
    draw(report, tmp_path / "matrix.svg")
    assert (tmp_path / "matrix.svg").read_text().lstrip().startswith("<?xml")


def test_cells_that_ran_are_lines_of_a_csv(report: Document, tmp_path: Path) -> None:
    write_csv(report, tmp_path / "matrix.csv")
    with (tmp_path / "matrix.csv").open(newline="") as file:
        good, bad = csv.DictReader(file)
    place = {name: good[name] for name in ("body_bytes", "consume", "policy", "topics")}
    assert place == {"body_bytes": "1024", "consume": "0", "policy": "async + async", "topics": "8"}
    assert (good["msg/s"], good["p99 ms"], good["CPU master"], good["correct"]) == ("12346", "2.50", "0.25", "1")
    assert (bad["msg/s"], bad["correct"], bad["note"]) == ("", "0", "read back: 9 of 10, 0 out of order")


def test_written_results_are_drawn_again(report: Document, tmp_path: Path) -> None:
    draw(report, tmp_path / "first.svg")
    (tmp_path / "matrix.json").write_text(json.dumps(report))
    assert matrix.main(["--plot", str(tmp_path / "matrix.json"), "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "matrix.svg").read_bytes() == (tmp_path / "first.svg").read_bytes()


def test_the_picture_of_the_docs_is_that_of_the_kept_cells(tmp_path: Path) -> None:
    """`--plot` draws what docs/matrix.svg shows: the same labels and as many lines, whatever matplotlib's version."""
    assert matrix.main(["--plot", str(ROOT / "loadtest/matrix/matrix.json"), "--folder", str(tmp_path)]) == 0
    drawn, kept = (path.read_text() for path in (tmp_path / "matrix.svg", ROOT / "docs/matrix.svg"))
    assert re.findall(">([^<>]+)</text>", drawn) == re.findall(">([^<>]+)</text>", kept)
    assert drawn.count("stroke-dasharray") == kept.count("stroke-dasharray")
    assert len(drawn) < 32_000
    places = [row["place"] for row in json.loads((ROOT / "loadtest/matrix/matrix.json").read_text())["rows"]]
    assert places == [dict(cell.place) for cell in all_cells()]


@pytest.mark.io_uring
def test_one_cell_is_measured(tmp_path: Path) -> None:
    """Consumed, with flush and replication awaited."""
    with context_of(argparse.Namespace(folder=tmp_path, seconds=0.3, warmup_s=0.075)) as context:
        cell = cell_of(100, True, "sync flush + sync replication", 8)
        measured = run_cell(context, cell.place)
    assert measured.ok, measured.note
    assert measured.values["messages_per_s"] > 0
    assert {"mean", "p99", "p99_9", "master_cpu", "slave_cpu", "memory_mib", "consumed_per_s"} <= set(measured.values)
    assert not (tmp_path / "stores").exists()


def test_cells_without_time_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(matrix.turns(cast(Context, None), all_cells(), time.monotonic() - 1, 0)) == []
    assert "no time left for 108 cells" in capsys.readouterr().err
