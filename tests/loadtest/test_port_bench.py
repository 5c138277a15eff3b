"""`make bench-port`, one second of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.port.main import is_whole, main, measure, table
from ringmq.loadtest.port.pressure import Clients, Round, pressure_table


@pytest.mark.io_uring
def test_a_second_of_republished_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rounds", "1", "--seconds", "1", "--records", "4000", "--folder", str(tmp_path / "port")]
    assert main([*arguments, "--pressure-rounds", "0"]) == 0, "every copy is in the target"
    assert "| 1 | " in capsys.readouterr().out


@pytest.mark.io_uring
def test_some_seconds_beside_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rounds", "0", "--pressure-rounds", "1", "--pressure-seconds", "3", "--pressure-records", "20000"]
    assert main([*arguments, "--folder", str(tmp_path / "port")]) == 0, "clients and service have done their work"
    text = capsys.readouterr().out
    assert "round 1 of 1: clients" in text and "| yes |" in text and "goal 45,000" in text


def test_a_round_beside_clients_counts_when_its_work_was_done() -> None:
    well = Clients(1000.0, 500.0, True, "")
    done = Round(well, replace(well, rate=600.0, p99_us=2000.0), 50_000.0, True)
    assert done.ok and (done.kept, done.p99_ratio) == (0.6, 4.0)
    text = pressure_table([done])
    assert [line.rsplit(" ", 1)[1] for line in text.splitlines()[-3:]] == ["MISSED", "MISSED", "met"]
    for wrong in (
        replace(done, whole=False), replace(done, service_rate=0.0), replace(done, alone=replace(well, ok=False)),
    ):  # fmt: skip
        assert not wrong.ok and "| NO" in pressure_table([wrong])


@pytest.mark.io_uring
def test_a_profile_names_functions_and_a_lost_copy_does_not_count(tmp_path: Path) -> None:
    result = measure(tmp_path / "port", build_tools(), records=2000, body=100, seconds=0.5, sync=True, profile=True)
    assert "republisher.py" in result["profile"] and is_whole(result)
    assert result["submitted"] > 2000, "the source is republished from its beginning again"
    for field in ("refused_copies", "refused_requests", "read"):
        assert not is_whole({**result, field: result[field] + 1})
    assert "| NO |" in table([{**result, "read": 0}])
