"""The Spark bench: its table of promises, what it makes of measurements, and one whole small run."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.loadtest.load.tools import Tools
from ringmq.loadtest.measuring.command import document
from ringmq.loadtest.measuring.measurement import RINGMQ, Measurement
from ringmq.loadtest.measuring.rounds import Session, named, run_rounds
from ringmq.loadtest.spark.cpu_load import use_cpu
from ringmq.loadtest.spark.main import BENCH, shares_of_goals
from ringmq.loadtest.spark.rows import counted, faster
from ringmq.loadtest.spark.table import ROWS
from ringmq.loadtest.spark.workbench import SparkRow, Workbench, side_by_side

# A small run, one row of each way to measure: the 200-byte store, the jar and the age of rows go the ways of others.
ONE_OF_EACH = (
    "scan-1k",
    "tcp",
    "micro-batch",
    "sink",
)


def test_the_table_holds_the_promised_rows() -> None:
    goals = {row.name: [f"{goal.metric} {goal.text()}" for goal in row.goals] for row in ROWS}
    assert goals == {
        "scan-1k": ["ratio >=1"],
        "count-1k": ["ratio >=0.5"],
        "group-1k": ["ratio >=0.5"],
        "jvm-scan-1k": ["ratio >=2"],
        "jvm-count-1k": ["ratio >=1"],
        "jvm-group-1k": ["ratio >=1"],
        "scan-200b": ["ratio >=0.9"],
        "count-200b": ["ratio >=0.3"],
        "group-200b": ["ratio >=0.3"],
        "jvm-scan-200b": ["ratio >=1.5"],
        "jvm-count-200b": ["ratio >=1"],
        "jvm-group-200b": ["ratio >=1"],
        "stock": ["ratio >=5"],
        "tcp": ["ratio >=0.5"],
        "broker-cpu": ["ours <=2"],
        "producer": ["ratio >=0.95"],
        "micro-batch": ["ours <=75", "p95 <=100"],
        "age": ["ours <=100"],
        "available-now": ["ratio >=0.8"],
        "available-now-200k": ["ratio >=0.5"],
        "sink": ["ratio >=0.5"],
        "task-memory": ["ours <=143.051"],
    }


def test_rows_are_chosen_by_name() -> None:
    assert [row.name for row in BENCH.parse(["--rows", "sink,scan-1k"]).row_list] == ["scan-1k", "sink"]
    assert BENCH.parse([]).row_list == list(ROWS)
    with pytest.raises(SystemExit):
        BENCH.parse(["--rows", "nosuch"])


def bench_in(folder: Path, *rows: SparkRow) -> Workbench:
    return Workbench(folder, Tools(folder, folder, folder), rows=rows, say=lambda text: None)


def row_of(name: str, *runs: Measurement) -> SparkRow:
    """A row with the goals of the real one that gives these runs, then fails."""
    (real,) = named(ROWS, [name])
    left = list(runs)
    return replace(real, run=lambda bench: left.pop(0))


def test_sides_change_places_from_round_to_round(tmp_path: Path) -> None:
    bench, order = bench_in(tmp_path), []
    for bench.round in (1, 2):
        side_by_side(bench, lambda: order.append("ours"), lambda: order.append("other"))
    assert order == ["other", "ours", "ours", "other"]


def test_a_wrong_count_does_not_count() -> None:
    assert counted(faster(1.0, 2.0), {"ours": 5, "parquet": 5}, 5) == faster(1.0, 2.0)
    wrong = counted(faster(1.0, 2.0), {"ours": 5, "parquet": 4}, 5)
    assert not wrong.ok
    assert wrong.note == "parquet counted 4 of 5 rows"


def test_rounds_become_medians_and_a_failing_row_stops_nothing(tmp_path: Path) -> None:
    rows = [
        row_of("scan-1k", faster(9, 9), faster(2.0, 3.0), faster(2.0, 4.0), faster(2.0, 1.0)),
        row_of("micro-batch", *[Measurement({"ours": 60.0, "p95": 120.0})] * 2),
    ]
    bench = bench_in(tmp_path, *rows)
    bench.warm_up()
    session = Session(rows, bench.turns, 3, header=bench.circumstances)
    run_rounds(session, bench.say)
    report = json.loads(json.dumps(document(session, tmp_path, {"cores": 2})))
    scan, batches = report["rows"]
    summary = scan["systems"][RINGMQ]
    assert (summary["median"]["ratio"], summary["spread"]["ratio"], summary["counted"]) == (1.5, 1.5, 3)
    assert [goal["met"] for goal in scan["goals"]] == [True]
    summary = batches["systems"][RINGMQ]
    assert (summary["runs"], summary["counted"]) == (3, 1)
    assert "IndexError" in summary["notes"][0]
    assert [goal["met"] for goal in batches["goals"]] == [True, False]
    assert dict(shares_of_goals(report)) == pytest.approx(
        {"1 KiB, all columns": 1.5, batches["title"]: 1.25, f"{batches['title']}, p95": 100 / 120}
    )
    assert "p95 **120** (<=100: SHORT)" in BENCH.text(report)


def test_a_cpu_load_uses_its_share_and_no_more() -> None:
    assert 0.05 < use_cpu(0.5, 0.6) <= 0.35


@pytest.mark.io_uring
@pytest.mark.spark
@pytest.mark.stock
@pytest.mark.timeout(600)
def test_a_whole_small_run(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ringmq.loadtest.spark", "--quick", "--rows", ",".join(ONE_OF_EACH)]
    done = subprocess.run([*words, "--folder", str(tmp_path)], capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads((tmp_path / "bench.json").read_text())
    assert {row["name"]: row["systems"][RINGMQ]["counted"] for row in report["rows"]} == dict.fromkeys(
        ONE_OF_EACH, 1
    ), done.stderr
    assert all(goal["value"] > 0 for row in report["rows"] for goal in row["goals"])
    assert (tmp_path / "bench.svg").read_text().lstrip().startswith("<?xml")
    assert not (tmp_path / "data").exists()
