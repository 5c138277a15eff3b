"""What killed brokers leave in shared memory: there for a restart, gone when the kit is done with the store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.ipc.segment import SHM_DIR, plane_name
from ringmq.loadtest.drills.drill import Drill
from ringmq.loadtest.load.running import RunningBroker
from tests.conformance.servers import SMALL_FILES, RingmqServer

pytestmark = pytest.mark.timeout(400)


def segments(store: Path) -> list[Path]:
    return list(SHM_DIR.glob(f"{plane_name(store)}-*"))


def of_a_running_broker(store: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    broker = RunningBroker(store, SMALL_FILES)
    return broker.kill_all, broker.close


def of_a_server(store: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    server = RingmqServer(store.parent, SMALL_FILES, store)
    return server.kill, server.close


def of_a_drill(store: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    drill = Drill(store, 1, {})
    return drill.broker.kill_all, drill.abandon


@pytest.mark.parametrize("start", [of_a_running_broker, of_a_server, of_a_drill])
def test_a_kill_leaves_it_for_a_restart_and_the_end_does_not(
    start: Callable[[Path], tuple[Callable[[], None], Callable[[], None]]], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    kill, close = start(store)
    kill()
    assert segments(store)
    close()
    assert not segments(store)


def test_a_block_that_killed_its_broker_leaves_it_too(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SMALL_FILES) as broker:
        broker.kill_all()
    assert segments(store)
    with RunningBroker(store, SMALL_FILES) as again:
        broker.close()
        assert segments(store), "somebody else has the store"
        assert again.process.poll() is None
    assert not segments(store)
