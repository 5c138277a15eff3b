"""Folders and links of other users in a store: the store is refused by name, before anything of it is used."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.broker.start_error import StartError
from ringmq.broker.start_files import check_store_owner
from ringmq.cli.main import main
from ringmq.ipc.exit_status import EXIT_STORE_REFUSED
from ringmq.store.config import StoreConfig
from ringmq.store.store_owner import ForeignStoreError, check_owner, is_open_to_all

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    for folder in ("commitlog", "config", "index", "consumequeue/T/0", "timerlog"):
        (root / folder).mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(65536))
    (tmp_path / "elsewhere").mkdir()
    return root


def give(path: Path) -> Path:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


def link(path: Path) -> Path:
    """Make a link, in place of an empty folder or of nothing, that leads out of the store."""
    if path.is_dir():
        path.rmdir()
    root = next(folder for folder in path.parents if folder.name == "store")
    path.symlink_to(root.parent / "elsewhere")
    return path


def planted_queue(root: Path) -> Path:
    (root / "consumequeue/T").chmod(0o777)
    return give(link(root / "consumequeue/T/1"))


def foreign_target(root: Path) -> Path:
    link(root / "index")
    return give(root.parent / "elsewhere")


FOREIGN: dict[str, Callable[[Path], Path]] = {
    "the folder": lambda root: give(root),
    "the queues": lambda root: give(root / "consumequeue"),
    "a topic": lambda root: give(root / "consumequeue/T"),
    "a log file": lambda root: give(root / "commitlog" / f"{0:020d}"),
    "a link for the index": lambda root: give(link(root / "index")),
    "a link for a topic": lambda root: give(link(root / "consumequeue/U")),
    "a link for a queue": planted_queue,
    "a link for a table": lambda root: give(link(root / "config/topics.json")),
    "what a link leads to": foreign_target,
    "a guest's folder": lambda root: give(root / "timerlog"),
    "a link in a guest's folder": lambda root: give(link(root / "timerlog" / f"{0:020d}")),
    "a link for a guest's file": lambda root: give(link(root / "timerwheel")),
}


@as_root
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_another_user_has_made_is_refused_by_name(store: Path, kind: str) -> None:
    path = FOREIGN[kind](store)
    with pytest.raises(StartError) as caught:
        check_store_owner(StoreConfig(store))
    said = str(caught.value)
    assert caught.value.status == EXIT_STORE_REFUSED
    assert str(path) in said and "belongs to user nobody, not to root" in said and "chown -h" in said
    assert ("the link" in said) == path.is_symlink()
    assert ("remove it" in said) == path.is_symlink(), "chown of all would make a planted link a trusted one"


@as_root
@pytest.mark.parametrize("words", [["broker"], ["serve", "--namesrv-port", "0"], ["store", "repair"]])
def test_no_command_writes_to_such_a_store(store: Path, words: list[str]) -> None:
    give(store)
    before = sorted(store.rglob("*"))
    where = [str(store)] if words[0] == "store" else ["--store", str(store), "--port", "0"]
    result = CliRunner().invoke(main, [*words, *where, "--set", "mappedFileSizeCommitLog=65536"])
    assert result.exit_code == (1 if words[0] == "store" else EXIT_STORE_REFUSED), result.output
    assert f"{store} belongs to user nobody" in result.output
    assert sorted(store.rglob("*")) == before


def test_an_operators_own_links_are_followed(store: Path) -> None:
    link(store / "batchconsumequeue")
    link(store / "index")
    (store.parent / "way").symlink_to(store)
    check_owner(StoreConfig(store.parent / "way"))
    check_owner(StoreConfig(store, (store.parent / "elsewhere", store.parent / "not there")))
    check_owner(StoreConfig(store.parent / "no store"))
    (store / "consumequeue/dangling").symlink_to(store / "nowhere")
    (store / "circle").symlink_to("circle")
    check_owner(StoreConfig(store))


@as_root
def test_data_of_another_program_beside_the_store_is_its_own(store: Path) -> None:
    """The folder of a store may be a volume that others use, too."""
    (store / "prometheus").mkdir()
    give(store / "prometheus")
    check_owner(StoreConfig(store))


@as_root
def test_a_user_may_run_on_folders_of_root(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package makes them, and a volume for all users is a folder of root."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    check_owner(StoreConfig(store))
    give(store / "index")
    check_owner(StoreConfig(store))
    os.chown(store / "index", NOBODY - 1, NOBODY)
    with pytest.raises(ForeignStoreError, match=r"index belongs to user 65533, not to nobody"):
        check_owner(StoreConfig(store))


def test_a_folder_of_all_users_is_named_and_used(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_store_owner(StoreConfig(store))
    assert not caplog.records
    store.chmod(0o777)
    check_store_owner(StoreConfig(store))
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "chmod o-w" in caplog.text
    store.chmod(0o1777)
    assert not is_open_to_all(store)
