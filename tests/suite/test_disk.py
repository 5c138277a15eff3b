"""The look at the disk before a run of the suite."""

from pathlib import Path

import pytest

from tests.suite import disk
from tests.suite.__main__ import main


def test_it_names_folder_need_and_what_to_remove(tmp_path: Path) -> None:
    assert disk.missing_disk(tmp_path, 0.0) == ""
    assert f"needs 1e+09 GB of disk below {tmp_path}, found " in disk.missing_disk(tmp_path, 1e9)
    (tmp_path / "pytest-of-me").mkdir()
    assert f"remove stores of earlier runs ({tmp_path}/pytest-of-me)" in disk.missing_disk(tmp_path, 1e9)


def test_a_suite_without_space_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(disk.missing_disk, "__defaults__", (1e9,))
    assert main([]) != 0
    assert "suite: needs 1e+09 GB of disk" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
