"""The worker `pop` of a broker that has become the master since its start compares its memory with the log itself."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.role_loop import RoleError
from ringmq.pop import worker
from ringmq.pop.take_over import TakeOverError


class FakePlane:
    is_pop_compared = False

    def pop_is_compared(self) -> None:
        self.is_pop_compared = True


def compare(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> FakePlane:
    """Compare once, with this end of the comparison."""
    plane: Any = FakePlane()

    def has_open_work(config: BrokerConfig, root: Path) -> bool:
        assert not plane.is_pop_compared, "a death meanwhile repeats it"
        if error is not None:
            raise error
        return True

    monkeypatch.setattr(worker, "has_open_work", has_open_work)
    worker.compare_with_log(plane, BrokerConfig(), Path("store"))
    assert isinstance(plane, FakePlane)
    return plane


def test_it_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compare(monkeypatch).is_pop_compared


def test_without_a_memory_groups_go_on_at_their_offsets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert compare(monkeypatch, OSError(errno.EIO, "bad disk")).is_pop_compared
    assert "groups go on at consumer offsets" in caplog.text


def test_open_messages_behind_offsets_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RoleError, match="cannot be read"):
        compare(monkeypatch, TakeOverError("the memory of POP's open messages cannot be read"))


def test_the_start_of_the_service_compares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[Path] = []

    class StopHereError(Exception):
        """The comparison is all that counts."""

    def stop(plane: object, config: BrokerConfig, root: Path) -> None:
        calls.append(root)
        raise StopHereError

    monkeypatch.setattr(worker, "compare_with_log", stop)
    config: Any = lambda: BrokerConfig(store_path_root_dir=str(tmp_path))  # noqa: E731
    plane: Any = SimpleNamespace(is_pop_compared=False)
    spec: Any = SimpleNamespace(role=0)
    with pytest.raises(StopHereError):
        worker.make_service(spec, plane, config)
    assert calls == [tmp_path]
