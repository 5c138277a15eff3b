"""Filling a new plane before any worker runs, and filling control's state from the plane and the config files.

At a start `load_into` publishes topics with their gates, groups, queue bounds, consumer offsets and the rules of
admission: other workers serve before control does, and decide by what they find. Control loads the same files when it
comes up, which changes nothing. After a restart of control the plane has newer values than the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables import file_entries, groups, offsets, request_modes, topics
from ringmq.broker.tables.admission import AdmissionRules
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.broker.tables.publication import PlaneTables, group_flags
from ringmq.broker.tables.request_modes import RequestModeTable
from ringmq.broker.tables.topics import TopicTable
from ringmq.ipc.tenure import follows_master
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.flags import PERM_READ_WRITE
from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, load_config, save_damaged_copy
from ringmq.store.pending_deletions import read_deletions

NAMED_MAX = 10
"""Topics or groups that a line names."""


class QueueBounds(Protocol):
    """The bounds of a queue that recovery has found."""

    @property
    def min_offset(self) -> int:
        """First offset that the log still holds."""

    @property
    def max_offset(self) -> int:
        """Offset behind the last unit on disk. Dispatch adds the rest."""

    @property
    def next_offset(self) -> int:
        """Offset behind the last record of the log."""

    @property
    def is_batch(self) -> bool:
        """True for a BatchConsumeQueue."""

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


def load_into(
    plane: PlaneProtocol,
    config: BrokerConfig,
    recovered: RecoveredQueues,
    tell: Callable[[str], None] = file_entries.ignore,
) -> None:
    """Publish the content of the store's config files and the bounds of its queues. `tell` gets a line about each
    damaged file.

    Raises PlaneFullError, ConfigFileError and OSError.
    """
    now_ms = time.time_ns() // 1_000_000
    tables = PlaneTables(plane)
    bounds = {
        key: (max(0, queue.min_offset), queue.max_offset, queue.replay_from(recovered.append_offset))
        for key, queue in recovered.queues.items()
    }
    tables.remember(bounds, {topic for (topic, _), queue in recovered.queues.items() if queue.is_batch})
    topic_table = TopicTable(tables, lambda topic: None, ClientNames(plane.header))
    topic_table.move_gates(config, now_ms)

    def publish_group(group: str) -> None:
        flags = group_flags(group_table.get(group), members=False, broadcasting=False, cold=False)
        tables.publish_group(group, flags)

    group_table = GroupTable(publish_group, ClientNames(plane.header))
    offset_table = OffsetTable(plane, tables)
    root = Path(config.store_path_root_dir)
    load_modes(root, RequestModeTable(), fresh=True, tell=tell)  # control reads them, too; here damage is told
    damaged = load_state(root, config, topic_table, group_table, offset_table, now_ms, fresh=True, tell=tell)
    restores = not follows_master(plane.watermarks)  # a slave gets its tables from the master
    if restores and topics.FILE in damaged:
        restore_topics(topic_table, recovered, read_deletions(root), now_ms, tell)
    if restores and groups.FILE in damaged:
        restore_groups(group_table, offset_table, now_ms, tell)
    tables.publish_remembered()
    _publish_log_ends(plane, recovered)
    AdmissionRules(plane, LiveConfig(config, plane.watermarks)).publish()


def _publish_log_ends(plane: PlaneProtocol, recovered: RecoveredQueues) -> None:
    """Publish the ends of queues of which the log has more than the disk has units."""
    for (topic, queue_id), queue in recovered.queues.items():
        if queue.next_offset > queue.max_offset and (topic_id := plane.topic_find(topic)) is not None:
            slot = plane.queue_find(topic_id, queue_id)
            if slot is not None:
                plane.queue(slot).log_end = queue.next_offset


def restore_groups(
    group_table: GroupTable, offset_table: OffsetTable, now_ms: int, tell: Callable[[str], None]
) -> None:
    """Make groups that have offsets and that a lost or older subscriptionGroup.json lacks, with default settings.

    Only offsets name them: their own settings and forbidden topics are lost, and deleted groups whose offsets were kept
    come back.
    """
    made = sorted({group for _, group in offset_table.table() if group not in group_table})
    for group in made:
        group_table.put(SubscriptionGroupConfig(group), now_ms)
    if made:
        tell(
            f"{groups.FILE} lacked {_named(made)}: made again from {offsets.FILE} with default settings, check retries "
            "and forbidden topics, and delete groups that had been deleted"
        )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def restore_topics(
    topic_table: TopicTable,
    recovered: RecoveredQueues,
    deleted: Collection[str],
    now_ms: int,
    tell: Callable[[str], None],
) -> None:
    """Make topics that have queues and that a damaged topics.json has lost, with as many queues as are on disk."""
    queues: dict[str, int] = {}
    batch: set[str] = set()
    for (topic, queue_id), bounds in recovered.queues.items():
        queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        batch |= {topic} if bounds.is_batch else set()
    made = sorted(topic for topic in queues if topic not in topic_table and topic not in deleted)
    for topic in made:
        config = TopicConfig(topic, queues[topic], queues[topic], int(PERM_READ_WRITE))
        if topic in batch:
            config.attributes[topics.QUEUE_TYPE] = topics.BATCH_QUEUE
        topic_table.put(config, now_ms)
    if made:
        tell(f"{topics.FILE} lacked {_named(made)}: made again from their queues, check permissions and attributes")


def load_state(
    root: Path,
    config: BrokerConfig,
    topic_table: TopicTable,
    group_table: GroupTable,
    offset_table: OffsetTable,
    now_ms: int,
    *,
    fresh: bool,
    tell: Callable[[str], None] = file_entries.ignore,
) -> set[str]:
    """Read topics.json, subscriptionGroup.json and consumerOffset.json into the tables. Return the files in whose place
    an older copy was read. Raises ConfigFileError, OSError.

    An invalid entry is left out. `fresh` True: the plane is empty, and a damaged file is saved beside it and named by
    `tell`. False: the plane has newer consumer offsets, and they win.
    """
    older: set[str] = set()
    with _read(root, topics.FILE, fresh, tell, older) as (content, leave_out):
        topic_table.load(content, config, now_ms, leave_out)
    with _read(root, groups.FILE, fresh, tell, older) as (content, leave_out):
        group_table.load(content, now_ms, leave_out)
    with _read(root, offsets.FILE, fresh, tell, older) as (content, leave_out):
        offset_table.load(content, now_ms, into_plane=fresh, leave_out=leave_out)
    return older


def load_modes(
    root: Path, modes: RequestModeTable, *, fresh: bool, tell: Callable[[str], None] = file_entries.ignore
) -> None:
    """Read messageRequestMode.json, as `load_state` reads its files. Raises ConfigFileError, OSError."""
    with _read(root, request_modes.FILE, fresh, tell, set()) as (content, leave_out):
        modes.load(content, leave_out)


@contextlib.contextmanager
def _read(
    root: Path, file: str, fresh: bool, tell: Callable[[str], None], older: set[str]
) -> Iterator[tuple[dict[str, Any], Callable[[str], None]]]:
    """The file's content, and a callback for lines about its entries. An invalid value that concerns all entries raises
    ConfigFileError, which names the file. If the older copy is read, or there is no content, `file` goes into
    `older`."""
    lines: list[str] = []
    path = root / layout.CONFIG / file
    content = load_config(root, file, lines.append)
    read = [path, path.with_name(f"{file}.bak")] if lines else [path]
    if lines or not content:
        older.add(file)
    try:
        yield content, lambda line: lines.append(f"{path}: {line}")
    except (RemotingError, ValueError, TypeError, OverflowError) as error:
        raise ConfigFileError(f"{path}: {error}", [each for each in read if each.exists()]) from error
    if lines and fresh:
        kept = save_damaged_copy(root, file)
        copy = "" if kept is None else f". The damaged file is kept as {kept}"
        tell(file_entries.joined(lines) + copy)
