"""`make bench-port`, one second of it."""

from pathlib import Path

import pytest

from ringmq.loadtest.port_bench import is_whole, main, measure, table
from ringmq.loadtest.tools import build_tools


def test_a_second_of_republished_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rounds", "1", "--seconds", "1", "--records", "4000", "--folder", str(tmp_path / "port")]
    assert main(arguments) == 0, "every copy is in the target"
    assert "| 1 | " in capsys.readouterr().out


def test_a_profile_names_functions_and_a_lost_copy_does_not_count(tmp_path: Path) -> None:
    result = measure(tmp_path / "port", build_tools(), records=2000, body=100, seconds=0.5, sync=True, profile=True)
    assert "republisher.py" in result["profile"] and is_whole(result)
    assert result["submitted"] > 2000, "the source is republished from its beginning again"
    for field in ("refused_copies", "refused_requests", "read"):
        assert not is_whole({**result, field: result[field] + 1})
    assert "| NO |" in table([{**result, "read": 0}])
