"""`make bench-port`, one second of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.measuring.command import document
from ringmq.loadtest.measuring.measurement import RINGMQ
from ringmq.loadtest.measuring.rounds import Session
from ringmq.loadtest.port import pressure, rates
from ringmq.loadtest.port.main import BENCH, faults, main
from ringmq.loadtest.port.pressure import Clients, measurement_of


@pytest.mark.io_uring
def test_a_second_of_republished_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rounds", "1", "--seconds", "1", "--records", "4000", "--folder", str(tmp_path / "port")]
    assert main([*arguments, "--pressure-rounds", "0"]) == 0, "every copy is in the target"
    assert "| 1 | " in capsys.readouterr().out


@pytest.mark.io_uring
def test_some_seconds_beside_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rounds", "0", "--pressure-rounds", "1", "--pressure-seconds", "1", "--pressure-records", "20000"]
    assert main([*arguments, "--folder", str(tmp_path / "port")]) == 0, "clients and service have done their work"
    said = capsys.readouterr()
    assert "round 1 of 1" in said.err and "service_per_s" in said.err
    assert "| yes |" in said.out and "(>=45000: " in said.out


def test_a_round_beside_clients_counts_when_its_work_was_done(tmp_path: Path) -> None:
    well = Clients(1000.0, 500.0, True, "")
    late = replace(well, rate=600.0, p99_us=2000.0)
    done = measurement_of(well, late, 50_000.0, is_whole=True)
    assert done.ok and (done.values["kept"], done.values["p99_ratio"]) == (0.6, 4.0)
    refused = replace(well, ok=False, note="answers by code {2: 1}")
    wrong = [
        measurement_of(well, late, 50_000.0, is_whole=False), measurement_of(well, late, 0.0, is_whole=True),
        measurement_of(refused, late, 50_000.0, is_whole=True),
    ]  # fmt: skip
    assert not any(run.ok for run in wrong)
    runs = {pressure.ROW.name: {RINGMQ: [done, *wrong]}}
    report = document(Session([rates.ROW, pressure.ROW], lambda number: (turn for turn in ()), 4, runs=runs), tmp_path)
    assert len(faults(report)) == 3
    lines = BENCH.text(report).splitlines()
    assert "| 4 | 1,000 | 600 | 0.60 | 500 | 2,000 | 4.00 | 50,000 | NO answers by code {2: 1} |" in lines
    assert [line.rsplit(" ", 1)[1] for line in lines if line.startswith("- beside clients: ")] == [
        "SHORT)",
        "SHORT)",
        "ok)",
    ]


@pytest.mark.io_uring
def test_a_profile_names_functions_and_a_lost_copy_does_not_count(tmp_path: Path) -> None:
    measured = rates.measure(
        tmp_path / "port", build_tools(), records=2000, body=100, seconds=0.5, sync=True, profile=True
    )
    assert "republisher.py" in measured.raw["profile"] and measured.ok
    assert measured.raw["submitted"] > 2000, "the source is republished from its beginning again"
    for field in ("refused_copies", "refused_requests", "read"):
        assert not rates.measurement_of({**measured.raw, field: measured.raw[field] + 1}).ok
