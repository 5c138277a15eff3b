"""The tables of the slave whose log is adopted: a master that lost its disk has lost its topics, too, and would not
know whose messages it took over.

Only what the master does not have is taken, into its config files while the store is closed: its own settings and
offsets are newer than a slave's copy.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ringmq.broker.tables import groups, offsets, topics
from ringmq.ha.broker_line import BrokerLine
from ringmq.ha.slave_sync import ConsumerOffsets, SlaveSync, Synced
from ringmq.remoting import json_body
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.config_beans import DataVersion, TopicConfigTable
from ringmq.remoting.errors import RemotingError
from ringmq.store.config_files import load_config, persist_config

NAMES_TOLD_MAX = 20


def take_tables(root: Path, address: str) -> list[str]:
    """Ask the broker at `address`, host:port, and add what is not in the config files; lines for the operator.

    Raises OSError when it does not say all, or for our disk; ConfigFileError for files of ours that cannot be read.
    """
    told: list[tuple[str, list[str]]] = []
    entries: dict[str, Any]
    for synced in _ask(address):
        match synced:
            case TopicConfigTable():
                entries = {name: topic.to_json() for name, topic in synced.topics.items()}
                told.append(("topics", _add(root, topics.FILE, "topicConfigTable", entries)))
            case GroupConfigTable():
                entries = {name: group.to_json() for name, group in synced.groups.items()}
                told.append(("groups", _add(root, groups.FILE, "subscriptionGroupTable", entries)))
            case ConsumerOffsets():
                entries = {
                    f"{topic}{offsets.SEPARATOR}{group}": queues for (topic, group), queues in synced.offsets.items()
                }
                told.append(("offsets", _add(root, offsets.FILE, "offsetTable", entries)))
    return [f"{what} taken over from {address}: {_text(names)}" for what, names in told if names]


def _ask(address: str) -> list[Synced]:
    """A slave's pass (ha/slave_sync.py), once."""
    sync, found = SlaveSync(), []
    sync.master_is(address, _now_ms())
    try:
        line = BrokerLine(address)
    except ValueError as error:
        raise OSError(f"{address!r} is not host:port") from error
    try:
        while not sync.passes and (ask := sync.due(_now_ms())) is not None:
            answer = line.ask(ask.command(), ask.timeout_ms)
            if answer.code:
                raise OSError(f"{address} answers request {ask.code} with {answer.code}: {answer.remark or ''}")
            synced = sync.answered(ask, answer, _now_ms())
            if synced is not None:
                found.append(synced)
    except RemotingError as error:
        raise OSError(f"{address}: {error}") from error
    finally:
        line.close()
    if not sync.passes:
        raise OSError(f"{address} does not come to the end of its tables")
    return found


def _add(root: Path, file: str, table: str, entries: dict[str, Any]) -> list[str]:
    """Add the entries that the file's table lacks; their names. The version steps: name servers look at it."""
    content = load_config(root, file)
    known = json_body.mapping(content, table)
    fresh = [name for name in entries if name not in known]
    if fresh:
        version = DataVersion.from_json(json_body.mapping(content, "dataVersion"))
        version.next(time.time_ns() // 1_000_000)
        added = {table: {**known, **{name: entries[name] for name in fresh}}}
        persist_config(root, file, {**content, "dataVersion": version.to_json(), **added})
    return fresh


def _text(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_TOLD_MAX} more" if len(names) > NAMES_TOLD_MAX else ""
    return ", ".join(names[:NAMES_TOLD_MAX]) + more


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
