"""What a master does with sends before its worker `ha` is up: the same as without a slave."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.config.run_config import store_config
from ringmq.broker.server import make_plane
from ringmq.broker.side_words import show_side
from ringmq.ha.master_core import MasterCore
from ringmq.ha.master_events import State, Tick
from ringmq.ha.settings import HaSettings
from ringmq.ipc.placement import place
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import remove_segments
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.ipc.workers import WORKERS
from ringmq.native import lib
from ringmq.store.recovery import recover

OK, LOST = lib.RMQ_REPLICATION_OK, lib.RMQ_REPLICATION_LOST
AUTO = {"enableAutoInSyncReplicas": "true"}
CASES = [
    ({"brokerRole": "SYNC_MASTER"}, LOST),
    ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3"}, LOST),
    ({"brokerRole": "SYNC_MASTER", "replicaPolicy": "all", "totalReplicas": "3"}, LOST),
    ({"brokerRole": "SYNC_MASTER", "replicaPolicy": "rooms", "haRoom": "east"}, LOST),
    ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2", **AUTO}, LOST),
    ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", **AUTO}, OK),
    ({"brokerRole": "SYNC_MASTER", "replicationPolicy": "none"}, OK),
    ({"brokerRole": "ASYNC_MASTER"}, OK),
]


@contextmanager
def first_plane(root: Path, properties: dict[str, str]) -> Iterator[tuple[Plane, BrokerConfig]]:
    """The shared memory of a start, before any worker runs."""
    sizes = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "6000"}
    config = changed(BrokerConfig(), {**sizes, **properties, "storePathRootDir": str(root)})
    rows = WORKERS.rows(1)
    plane = make_plane(config, root, recover(store_config(config)), rows, place([0], 1), "127.0.0.1")
    try:
        yield plane, config
    finally:
        remove_segments(plane.name)


@pytest.mark.parametrize(("properties", "state"), CASES)
def test_a_start_has_the_state_that_ha_finds_without_a_slave(
    tmp_path: Path, properties: dict[str, str], state: int
) -> None:
    with first_plane(tmp_path, properties) as (plane, config):
        core = MasterCore(HaSettings.from_properties(config.as_properties()))
        found = next(effect for effect in core.step(Tick(), 0) if isinstance(effect, State))
        assert plane.watermarks.replication_state == found.replication_state == state
        if state != OK:
            assert plane.watermarks.in_sync_replicas == found.in_sync_replicas


def test_a_slave_has_no_state_of_replicas(tmp_path: Path) -> None:
    with first_plane(tmp_path, {"brokerRole": "SLAVE", "brokerId": "1"}) as (plane, _):
        assert plane.watermarks.replication_state == OK


@pytest.mark.parametrize(
    ("properties", "state"),
    [
        ({"brokerRole": "SLAVE", "brokerId": "1"}, TenureState.SLAVE),
        ({"brokerRole": "ASYNC_MASTER"}, TenureState.MASTER),
        ({"brokerRole": "SYNC_MASTER"}, TenureState.MASTER),
    ],
)
def test_a_start_publishes_the_side_that_the_configuration_names(
    tmp_path: Path, properties: dict[str, str], state: TenureState
) -> None:
    with first_plane(tmp_path, properties) as (plane, _):
        assert Tenure.of(int(plane.watermarks.tenure)) == Tenure(state, epoch=0)


def test_the_words_of_the_other_side_take_the_place_of_those_of_the_start(tmp_path: Path) -> None:
    """They are those of a start on that side. What the configuration says of a master stays its policy."""
    properties = {"brokerRole": "SYNC_MASTER", "accessMessageInMemoryMaxRatio": "40"}
    with first_plane(tmp_path, properties) as (plane, config):
        settings, marks = plane.header.settings, plane.watermarks
        as_master = settings.sync_replication, marks.confirm_policy, settings.memory_window_bytes
        show_side(plane, config, follows=True)
        assert (settings.sync_replication, marks.confirm_policy) == (0, lib.RMQ_CONFIRM_LIMITED)
        assert abs(settings.memory_window_bytes - as_master[2] * 3 // 4) <= 1
        show_side(plane, config, follows=False)
        assert (settings.sync_replication, marks.confirm_policy, settings.memory_window_bytes) == as_master
    with first_plane(tmp_path, {"brokerRole": "ASYNC_MASTER"}) as (plane, config):
        assert plane.watermarks.confirm_policy == lib.RMQ_CONFIRM_APPENDED
        show_side(plane, config, follows=True)
        assert plane.watermarks.confirm_policy == lib.RMQ_CONFIRM_LIMITED
