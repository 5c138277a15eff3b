"""A start that cuts the log, or goes on with that of a master, lets the guests forget first."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker import log_cut, server
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.log_cut import forget_behind
from ringmq.broker.start_error import StartError
from ringmq.store.store_task import Performed


def test_a_start_hands_the_guests_to_the_task_of_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def perform(*arguments: Any) -> Performed:
        given.extend(arguments)
        return Performed([])

    monkeypatch.setattr(server.store_task, "perform", perform)
    server.perform_store_task(changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)}))
    assert given[-1] is forget_behind


class StoreOpens(Exception):
    """The start goes on with the recovery of the log."""


@pytest.mark.parametrize(("role", "number", "forgets"), [("SLAVE", "1", True), ("ASYNC_MASTER", "0", False)])
def test_a_start_as_slave_lets_guests_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, number: str, forgets: bool
) -> None:
    forgotten: list[Path] = []

    def recover(*arguments: Any, **more: Any) -> None:
        raise StoreOpens

    monkeypatch.setattr(log_cut, "_AS_SLAVE", (forgotten.append,))
    monkeypatch.setattr(server, "recover_store", recover)
    settings = {"storePathRootDir": str(tmp_path), "brokerRole": role, "brokerId": number}
    context: Any = SimpleNamespace(config=changed(BrokerConfig(), settings), root=tmp_path)
    with pytest.raises(StoreOpens):
        server.open_store(context, lambda step: None)
    assert forgotten == ([tmp_path] if forgets else [])


def test_a_file_that_cannot_be_removed_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(root: Path) -> None:
        raise PermissionError(1, "not permitted", str(root / "pop"))

    monkeypatch.setattr(log_cut, "_AS_SLAVE", (fail,))
    settings = {"storePathRootDir": str(tmp_path), "brokerRole": "SLAVE", "brokerId": "1"}
    with pytest.raises(StartError, match="not permitted"):
        log_cut.forget_unless_master(changed(BrokerConfig(), settings))
