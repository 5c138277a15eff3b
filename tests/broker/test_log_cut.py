"""A start that cuts the log lets the guests forget first."""

from pathlib import Path
from typing import Any

import pytest

from ringmq.broker import server
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.log_cut import forget_behind
from ringmq.store.store_task import Performed


def test_a_start_hands_the_guests_to_the_task_of_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def perform(*arguments: Any) -> Performed:
        given.extend(arguments)
        return Performed([])

    monkeypatch.setattr(server.store_task, "perform", perform)
    server.perform_store_task(changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)}))
    assert given[-1] is forget_behind
