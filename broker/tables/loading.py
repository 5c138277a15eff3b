"""Filling a fresh plane before any worker runs, and filling control's state from it and from the config files.

At a start `load_into` publishes topics, groups, queue bounds and consumer offsets. Control does the same again from
the same files when it comes up, which changes nothing, and when it was restarted, where the plane knows better.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.tables import groups, offsets, topics
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.ports import PlanePort
from ringmq.broker.tables.publication import PlaneTables, group_flags
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting.errors import RemotingError
from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, load_config


class QueueBounds(Protocol):
    """What recovery knows of a queue."""

    @property
    def min_offset(self) -> int:
        """First offset that the log still has."""

    @property
    def max_offset(self) -> int:
        """Offset behind the last unit on disk; dispatch adds the rest."""

    @property
    def is_batch(self) -> bool:
        """It is a BatchConsumeQueue."""

    def replay_from(self, append_offset: int) -> int:
        """Records of the log below this offset get no unit."""


class RecoveredQueues(Protocol):
    """The part of `ringmq.store.recovery.RecoveredStore` that the tables need."""

    @property
    def queues(self) -> Mapping[tuple[str, int], QueueBounds]:
        """(topic, queue id) -> bounds."""

    @property
    def append_offset(self) -> int:
        """End of the log."""


def load_into(plane: PlanePort, config: BrokerConfig, recovered: RecoveredQueues) -> None:
    """Publish everything that the store's config files and queues say. Raises PlaneFullError and ConfigFileError."""
    now_ms = time.time_ns() // 1_000_000
    tables = PlaneTables(plane)
    bounds = {
        key: (max(0, queue.min_offset), queue.max_offset, queue.replay_from(recovered.append_offset))
        for key, queue in recovered.queues.items()
    }
    tables.remember(bounds, {topic for (topic, _), queue in recovered.queues.items() if queue.is_batch})
    topic_table = TopicTable(tables, lambda topic: None)

    def publish_group(group: str) -> None:
        flags = group_flags(group_table.get(group), members=False, broadcasting=False, cold=False)
        tables.publish_group(group, flags)

    group_table = GroupTable(publish_group)
    offset_table = OffsetTable(plane, tables)
    load_state(Path(config.store_path_root_dir), config, topic_table, group_table, offset_table, now_ms, fresh=True)
    tables.publish_remembered()


def load_state(
    root: Path,
    config: BrokerConfig,
    topic_table: TopicTable,
    group_table: GroupTable,
    offset_table: OffsetTable,
    now_ms: int,
    *,
    fresh: bool,
) -> None:
    """Read topics.json, subscriptionGroup.json and consumerOffset.json into the tables.

    `fresh` False: the plane already holds newer consumer offsets, they win. Raises ConfigFileError.
    """
    with _named(root, topics.FILE):
        topic_table.load(load_config(root, topics.FILE), config, now_ms)
    with _named(root, groups.FILE):
        group_table.load(load_config(root, groups.FILE), now_ms)
    with _named(root, offsets.FILE):
        offset_table.load(load_config(root, offsets.FILE), now_ms, into_plane=fresh)


@contextlib.contextmanager
def _named(root: Path, file: str) -> Iterator[None]:
    """A value that cannot be is a ConfigFileError that says in which file it stands."""
    try:
        yield
    except (RemotingError, ValueError, TypeError, OverflowError) as error:
        raise ConfigFileError(f"{root / layout.CONFIG / file}: {error}") from error
