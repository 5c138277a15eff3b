"""The replication matrix: its cells, its table and plots, and one cell measured for real."""

import json
import os
import re
from pathlib import Path

import pytest

from ringmq.loadtest.matrix import main as matrix
from ringmq.loadtest.matrix.cells import Cell, Outcome, all_cells
from ringmq.loadtest.matrix.machine_stats import MachineStats, disk_counters, loopback_counter, machine_stats
from ringmq.loadtest.matrix.report import read_csv, table, write_csv, write_plots

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
    assert len(cells) == len(set(cells)) == 108
    assert len(matrix.chosen(matrix.parse(["--topics", "1,8", "--bodies", "100"]))) == 12


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


def test_a_cell_that_was_not_correct_says_so_in_the_table(tmp_path: Path) -> None:
    values = {"messages_per_s": 12345.6, "p99": 2500.0}
    good = Outcome(Cell(8, 1024, False, "async + async"), True, "", values)
    bad = Outcome(Cell(16, 1024, False, "async + async"), False, "read back: 9 of 10, 0 out of order", {})
    text = table([good.document(), bad.document()])
    assert "| 1 KiB | produce | async + async | 8 | 12,346 | - | - | 2.50 |" in text
    assert "**no**: read back: 9 of 10" in text
    write_plots([good.document(), bad.document()], tmp_path / "matrix.svg")
    assert (tmp_path / "matrix.svg").read_text().lstrip().startswith("<?xml")


def test_cells_are_read_back_from_their_csv(tmp_path: Path) -> None:
    values = {"messages_per_s": 12345.0, "p99": 2500.0, "master_cpu": 0.25}
    good = Outcome(Cell(8, 1024, True, "async + async"), True, "", values).document()
    bad = Outcome(Cell(16, 100, False, "async + async"), False, "read back: 9 of 10, 0 out of order", {}).document()
    write_csv([good, bad], tmp_path / "matrix.csv")
    assert read_csv(tmp_path / "matrix.csv") == [good, bad]


def test_the_picture_of_the_docs_is_that_of_the_kept_cells(tmp_path: Path) -> None:
    """`--plot` draws what docs/matrix.svg shows: the same labels and as many lines, whatever matplotlib's version."""
    assert matrix.main(["--plot", str(ROOT / "loadtest/matrix/matrix.csv"), "--folder", str(tmp_path)]) == 0
    drawn, kept = (path.read_text() for path in (tmp_path / "matrix.svg", ROOT / "docs/matrix.svg"))
    assert re.findall(">([^<>]+)</text>", drawn) == re.findall(">([^<>]+)</text>", kept)
    assert drawn.count("stroke-dasharray") == kept.count("stroke-dasharray")
    assert len(drawn) < 32_000
    assert len(read_csv(ROOT / "loadtest/matrix/matrix.csv")) == 108


@pytest.mark.io_uring
def test_one_cell_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Consumed, with flush and replication awaited."""
    options = ["--seconds", "0.3", "--topics", "8", "--bodies", "100", "--folder", str(tmp_path)]
    cells = [cell for cell in matrix.chosen(matrix.parse(options)) if cell.consume and "+ sync repl" in cell.policy]
    assert [cell.policy for cell in cells] == ["sync flush + sync replication"]
    context = matrix.context_of(matrix.parse(options))
    (outcome,) = matrix.run_matrix(context, cells, minutes=1)
    assert outcome.correct, outcome.note
    assert outcome.values["messages_per_s"] > 0
    assert {"mean", "p99", "p99_9", "master_cpu", "slave_cpu", "memory_mib", "consumed_per_s"} <= set(outcome.values)
    assert json.loads(json.dumps(outcome.document()))["topics"] == 8
    assert "1/1" in capsys.readouterr().err


def test_cells_without_time_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = matrix.context_of(matrix.parse(["--folder", str(tmp_path)]))
    assert matrix.run_matrix(context, all_cells(), minutes=-1) == []
    assert "no time left for 108 cells" in capsys.readouterr().err
