"""The next step in the error of a file that the system does not let a broker use."""

import errno
import os
from pathlib import Path

import pytest

from ringmq.broker.start_error import unusable_file
from tests.store.advice_kit import command_in


def said(root: Path, path: Path, code: int) -> str:
    return str(unusable_file(root, OSError(code, os.strerror(code), str(path))))


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "make room on its disk"), (errno.EIO, "no command mends it"), (errno.EROFS, "no command mends it")],
)
def test_a_fault_of_the_disk_has_no_command(tmp_path: Path, code: int, words: str) -> None:
    text = said(tmp_path, tmp_path / "checkpoint", code)
    assert words in text and "run: " not in text and str(tmp_path / "checkpoint") in text


def test_an_entry_of_a_wrong_type_is_moved_to_a_free_name(tmp_path: Path) -> None:
    path = tmp_path / "it's a checkpoint"
    os.mkfifo(path)
    Path(f"{path}.damaged").touch()
    command = command_in(said(tmp_path, path, errno.EPERM))
    assert os.system(command) == 0
    assert not path.exists() and Path(f"{path}.damaged.2").is_fifo()


def test_a_marker_of_a_wrong_type_stays_a_marker(tmp_path: Path) -> None:
    path = tmp_path / "abort"
    path.mkdir()
    assert os.system(command_in(said(tmp_path, path, errno.EISDIR))) == 0
    assert path.is_file() and (tmp_path / "abort.damaged").is_dir()


def test_the_right_to_make_a_file_is_that_to_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    assert command_in(said(tmp_path, folder / "brokerName", errno.EACCES)) == f"chmod u+rwx -- {folder}"
    (folder / "brokerName").touch()
    assert command_in(said(tmp_path, folder / "brokerName", errno.EACCES)) == f"chmod u+rw -- {folder / 'brokerName'}"


def test_a_log_file_is_never_moved_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "commitlog" / ("0" * 20)
    path.mkdir(parents=True)
    assert "no command mends it" in said(tmp_path, path, errno.EISDIR)


@pytest.mark.parametrize("name", ["", "lock", "config/topics.json"])
def test_no_command_gives_away_a_folder_in_front_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    home = tmp_path / "root"
    (home / "store" / "config").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, *_, **__: not Path(path).is_relative_to(home))
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    text = said(home / "store", home / "store" / name, errno.EACCES)
    assert f"{home} is closed to this user: choose another folder" in text and "run" not in text


def test_no_command_gives_away_the_root_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    text = said(Path("/"), Path("/no such file"), errno.EACCES)
    assert "/ is closed to this user" in text and "run" not in text
