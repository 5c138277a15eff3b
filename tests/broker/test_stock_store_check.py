"""A store is taken over only when that leaves nobody waiting who was not told."""

import time
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker import server, stock_store_check
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.server import ServeOptions, serve
from ringmq.broker.start_error import StartError
from ringmq.broker.stock_store_check import StockStoreError, stock_store_notices
from ringmq.ipc import notify
from ringmq.store.config import StoreConfig
from ringmq.store.unsupported import Unsupported
from tests.fake_service_manager import FakeServiceManager

WAITING = [
    Unsupported("light queue", "light message queues", 4),
    Unsupported("rocksdb", "x", None),
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreConfig:
    """A store in which something waits."""
    monkeypatch.setattr(stock_store_check, "find_unsupported", lambda config: WAITING)
    return StoreConfig(root=tmp_path)


def test_what_waits_is_listed_with_the_two_ways_on(store: StoreConfig) -> None:
    with pytest.raises(StockStoreError) as caught:
        stock_store_notices(store, BrokerConfig())
    text = str(caught.value)
    assert "  - 4 light message queues\n  - x\n" in text
    assert "--accept-unserved" in text and "stock broker deliver it first" in text


def test_accepted_it_is_told_and_left_alone(store: StoreConfig) -> None:
    lines = stock_store_notices(store, BrokerConfig(accept_unserved=True))
    assert lines == [f"left for a stock broker, not served here: {entry}" for entry in WAITING]


def test_a_slaves_store_is_its_masters_matter(store: StoreConfig) -> None:
    assert stock_store_notices(store, BrokerConfig(broker_role="SLAVE", broker_id=1)) == []


@pytest.mark.parametrize("role", [{}, {"broker_role": "SLAVE", "broker_id": 1}])
def test_a_store_with_timers_in_rocksdb_is_refused_though_it_is_accepted(tmp_path: Path, role: dict[str, Any]) -> None:
    (tmp_path / "rocksdbstore").mkdir()
    store, config = StoreConfig(root=tmp_path), BrokerConfig(accept_unserved=True, **role)
    assert stock_store_notices(store, config) == []
    (tmp_path / "rocksdbstore" / "CURRENT").write_text("MANIFEST-000001")
    with pytest.raises(StockStoreError, match=r"rocksdbstore.*timerRocksDBEnable.*move the folder"):
        stock_store_notices(store, config)


def test_the_survey_may_take_longer_than_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def survey(store: StoreConfig, config: BrokerConfig) -> list[str]:
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass
        raise StockStoreError("enough")

    fake = FakeServiceManager(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", fake.environment["NOTIFY_SOCKET"])
    monkeypatch.setattr(notify, "STILL_WORKING_EVERY_S", 0.02)
    monkeypatch.setattr(server, "stock_store_notices", survey)
    with pytest.raises(StartError, match="enough"):
        serve(ServeOptions(BrokerConfig(store_path_root_dir=str(tmp_path / "store"), listen_port=0)))
    fake.receive()
    assert any("EXTEND_TIMEOUT_USEC" in message for message in fake.messages)
    fake.close()


def test_a_newer_store_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    (tmp_path / "ringmq.format").write_text("99 ringmq 9.9\n")
    with pytest.raises(StartError, match=r"format 99, written by ringmq 9\.9"):
        serve(ServeOptions(BrokerConfig(store_path_root_dir=str(tmp_path), listen_port=0)))
    assert {path.name for path in tmp_path.iterdir()} == {"ringmq.format", "lock"}
