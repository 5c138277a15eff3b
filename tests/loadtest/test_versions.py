"""Two versions side by side: how ratios become a verdict, and one short run of a broker beside itself."""

import json
import mmap
import sys
from pathlib import Path

import pytest

from ringmq.loadtest.bench.rows import context_of
from ringmq.loadtest.measuring.comparison import AGAIN, CPU_US, NEW, OLD, Comparison, compare
from ringmq.loadtest.measuring.measurement import RATE, Measurement
from ringmq.loadtest.measuring.rounds import named
from ringmq.loadtest.versions import main as versions
from ringmq.loadtest.versions.disk_row import drop_pages
from ringmq.loadtest.versions.rows import ROWS, Broker, measure
from ringmq.loadtest.versions.staged_row import COMMITS, CONTROL_US


def a_round(old: float, again: float, new: float, cpu: float = 1.0, *, ok: bool = True) -> dict[str, Measurement]:
    return {
        OLD: Measurement({RATE: old, CPU_US: 1.0}),
        AGAIN: Measurement({RATE: again, CPU_US: 1.0}),
        NEW: Measurement({RATE: new, CPU_US: cpu}, ok=ok),
    }


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    found = compare([a_round(100, 98, 90), a_round(100, 100, 110), a_round(200, 206, 202)])
    assert found is not None
    assert found.ratio == pytest.approx(1.01)
    assert found.spread == pytest.approx(0.2)
    assert found.tolerance == pytest.approx(0.03)


def test_a_round_that_does_not_count_is_left_out() -> None:
    assert compare([a_round(100, 100, 100, ok=False)]) is None
    found = compare([a_round(100, 100, 10, ok=False), a_round(100, 100, 99)])
    assert found is not None
    assert (found.rounds, found.ratio) == (1, 0.99)


@pytest.mark.parametrize(
    ("ratio", "tolerance", "cpu", "is_slower"),
    [
        (0.98, 0.0, 1.5, False),  # within three percent
        (0.95, 0.01, 1.1, True),
        (0.95, 0.03, 1.1, False),  # old differs from itself by as much
        (0.80, 0.01, 1.0, False),  # no dearer: the machine was slower
        (0.80, 0.01, None, True),
    ],
)
def test_slower_needs_a_ratio_and_processor_time(ratio: float, tolerance: float, cpu: float, is_slower: bool) -> None:
    assert Comparison(5, ratio, 0.0, tolerance, cpu).is_slower is is_slower


def test_of_a_latency_less_is_better() -> None:
    rounds = [{OLD: Measurement({"p99": 100}), AGAIN: Measurement({"p99": 100}), NEW: Measurement({"p99": 200})}]
    found = compare(rounds, "p99")
    assert found is not None
    assert (found.ratio, found.is_slower) == (2.0, True)
    faster = compare([{**rounds[0], NEW: Measurement({"p99": 50})}], "p99")
    assert faster is not None
    assert not faster.is_slower


def test_pages_of_a_file_that_nobody_maps_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(bytes(1 << 20))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert mapped[:] == bytes(1 << 20)
        assert drop_pages(tmp_path) > 0.9
    assert drop_pages(tmp_path) == 0.0


def test_a_checkout_without_an_environment_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        versions.BENCH.parse(["--old", str(tmp_path)])
    assert "run `make dev` in that checkout" in capsys.readouterr().err


@pytest.mark.io_uring
@pytest.mark.timeout(400)
def test_a_broker_beside_itself(tmp_path: Path) -> None:
    """Two rows as the command runs them, then those of other kinds once each."""
    python = tmp_path / "checkout" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    arguments = ["--old", str(tmp_path / "checkout"), "--rounds", "1", "--seconds", "0.5", "--settle", "0"]
    arguments += ["--rows", "1x1, loader on the last CPU;transactions", "--folder", str(tmp_path / "results")]
    versions.main(arguments)
    report = json.loads((tmp_path / "results" / "versions.json").read_text())
    runs = [run for row in report["rows"] for side in (OLD, AGAIN, NEW) for run in row["systems"][side]["raw"]]
    assert [run["note"] for run in runs] == [""] * 6
    assert all(run["ok"] and run["values"][RATE] > 0 and run["values"][CPU_US] > 0 for run in runs)
    once = named(ROWS, ["staged writes", "staged writes, 16 queries at once", "delay-due"])
    with context_of(versions.BENCH.parse(arguments)) as context:
        context.delayed_messages = 2000
        measured = {row.name: measure(row, context, Broker(python)) for row in once}
    for name, run in measured.items():
        assert run.ok and run.values[RATE] > 0, (name, run.note)
        # on a busy machine all that is due may be delivered before the first look at the processor time
        assert run.values[CPU_US] > 0 or (name == "delay-due" and run.values[CPU_US] == 0), name
    assert {COMMITS, CONTROL_US} <= measured["staged writes, 16 queries at once"].values.keys()


def test_the_sides_of_a_row_that_did_not_count_are_named() -> None:
    systems = {OLD: {"counted": 0, "raw": []}, NEW: {"counted": 1, "raw": []}}
    report = {"rows": [{"name": "timers", "metric": RATE, "systems": systems}]}
    assert "| timers | 0 | - | - | - | - | did not count: old, old again |" in versions.table(report)
