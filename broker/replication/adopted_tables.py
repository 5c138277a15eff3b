"""The tables of the slave whose whole log is adopted. A master that has lost its disk has lost its topics, too, and
would not know the topics of the adopted messages.

The slave's tables are merged into the master's config files while the store is closed. They replace present entries,
too: those are of the time without the disk, when running clients made topics, groups and offsets again with defaults.
System topics and groups of this broker stay, and a topic whose deletion was answered stays deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringmq.broker.tables import file_entries, groups, offsets, request_modes, topics
from ringmq.broker.tables.request_modes import RequestModeTable, possible_modes
from ringmq.ha.broker_client import BrokerClient
from ringmq.ha.slave_sync import ConsumerOffsets, RequestModes, SlaveSync, Synced
from ringmq.remoting import json_body, names
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.config_beans import DataVersion, TopicConfigTable
from ringmq.remoting.errors import RemotingError
from ringmq.store.config_files import load_config, persist_config, persist_text
from ringmq.store.pending_deletions import read_deletions

NAMES_TOLD_MAX = 20

_Tables = dict[str, dict[str, Any]]
"""Entries by table and name."""


def take_tables(root: Path, address: str) -> list[str]:
    """Fetch the tables of the broker at `address`, host:port, and merge them into the config files. Returns log lines.

    Raises OSError if an answer is missing, and for our disk. Raises ConfigFileError for files of ours that cannot be
    read.
    """
    told: list[tuple[str, list[str]]] = []
    left_out: tuple[str, ...] = ()
    deleted = read_deletions(root)
    for synced in _ask(address):
        match synced:
            case TopicConfigTable():
                of_topics = {name: topic.to_json() for name, topic in synced.topics.items() if name not in deleted}
                own = names.is_system_topic
                told.append(("topics", _take(root, topics.FILE, {"topicConfigTable": of_topics}, own)))
            case GroupConfigTable():
                tables: _Tables = {
                    "subscriptionGroupTable": {name: group.to_json() for name, group in synced.groups.items()},
                    "forbiddenTable": {name: dict(bits) for name, bits in synced.forbidden.items() if bits},
                }
                told.append(("groups", _take(root, groups.FILE, tables, names.SYSTEM_GROUPS.__contains__)))
            case ConsumerOffsets():
                of_groups = {
                    f"{topic}{offsets.SEPARATOR}{group}": {str(queue_id): offset for queue_id, offset in queues.items()}
                    for (topic, group), queues in synced.offsets.items()
                    if topic not in deleted
                }
                told.append(("offsets", _take(root, offsets.FILE, {"offsetTable": of_groups}, lambda name: False)))
                left_out = synced.left_out
            case RequestModes():
                told.append(("request modes", _take_modes(root, synced)))
    lines = [f"{what} taken over from {address}: {_text(changed)}" for what, changed in told if changed]
    return lines + ([f"offsets of {address}: {file_entries.joined(left_out)}"] if left_out else [])


def _ask(address: str) -> list[Synced]:
    """One pass of a slave (ha/slave_sync.py)."""
    if not address.rpartition(":")[0]:
        raise OSError(f"{address!r} is not host:port")
    sync, found = SlaveSync(), []
    sync.master_is(address, _now_ms())
    client = BrokerClient(address)
    try:
        while not sync.passes and (ask := sync.due(_now_ms())) is not None:
            answer = client.ask(ask.command(), ask.timeout_ms)
            if answer.code:
                raise OSError(f"{address} answers request {ask.code} with {answer.code}: {answer.remark or ''}")
            synced = sync.answered(ask, answer, _now_ms())
            if synced is not None:
                found.append(synced)
    except RemotingError as error:
        raise OSError(f"{address}: {error}") from error
    finally:
        client.close()
    if not sync.passes:
        raise OSError(f"{address} does not send the last page of its tables")
    return found


def _take(root: Path, file: str, tables: _Tables, is_own: Callable[[str], bool]) -> list[str]:
    """Merge the entries into the file's tables, except for present names of our own. Returns the names that changed.
    The version steps, because name servers compare it."""
    content = load_config(root, file)
    changed: dict[str, None] = {}
    merged: _Tables = {}
    for table, entries in tables.items():
        known = json_body.mapping(content, table)
        fresh = {
            name: entry
            for name, entry in entries.items()
            if name not in known or (known[name] != entry and not is_own(name))
        }
        merged[table] = {**known, **fresh}
        changed |= dict.fromkeys(fresh)
    if changed:
        version = DataVersion.from_json(json_body.mapping(content, "dataVersion"))
        version.next(time.time_ns() // 1_000_000)
        persist_config(root, file, {**content, "dataVersion": version.to_json(), **merged})
    return list(changed)


def _take_modes(root: Path, taken: RequestModes) -> list[str]:
    """Merge the modes into messageRequestMode.json, which has no version. Returns the pairs that changed."""
    table = RequestModeTable()
    table.load(load_config(root, request_modes.FILE))
    before = {(mode.topic, mode.group): mode for mode in table}
    merged = before | {(mode.topic, mode.group): mode for mode in possible_modes(taken.modes, file_entries.ignore)}
    changed = [f"{topic}@{group}" for (topic, group), mode in merged.items() if before.get((topic, group)) != mode]
    if changed:
        table.replace(merged.values())
        persist_text(root, request_modes.FILE, table.file_text())
    return changed


def _text(changed: list[str]) -> str:
    more = f" and {len(changed) - NAMES_TOLD_MAX} more" if len(changed) > NAMES_TOLD_MAX else ""
    return ", ".join(changed[:NAMES_TOLD_MAX]) + more


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
