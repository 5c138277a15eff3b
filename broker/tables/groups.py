"""Consumer group configurations: system groups, automatic creation, changes, and `subscriptionGroup.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.tables import file_entries
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.encoded_entries import EncodedEntries
from ringmq.broker.tables.file_entries import LeaveOut
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting import json_body, names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import DataVersion, SubscriptionGroupConfig
from ringmq.remoting.errors import RequestError

FILE = "subscriptionGroup.json"
NAME_BYTES_MAX = 255
FORBIDDEN_MAX = 4096
"""Pairs of a group and a topic that requests may forbid."""
FORBIDDEN_READ = 1 << 2
"""Bit of a forbidden entry that stops pulls (`PermName.INDEX_PERM_READ`)."""


class GroupTable:
    """All group configurations by name. `on_change(group)` publishes the group."""

    def __init__(
        self, on_change: Callable[[str], None], client_names: ClientNames, audit: AuditTrail | None = None
    ) -> None:
        """`audit`: gets each change. None for tables that are only loaded."""
        self._audit = AuditTrail() if audit is None else audit
        self._on_change = on_change
        self._client_names = client_names
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._texts = EncodedEntries(FILE, "subscriptionGroupTable")
        self._sorted: list[str] | None = None
        self.data_version = DataVersion()
        self.dirty = False
        self.changes = 0
        """Number of changes since the start."""

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def __contains__(self, group: object) -> bool:
        return group in self._groups

    def names(self) -> list[str]:
        """All groups, sorted."""
        if self._sorted is None:
            self._sorted = sorted(self._groups)
        return self._sorted

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The configuration. Never makes one."""
        return self._groups.get(group)

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Make or change a group.

        Raises RequestError for numbers out of range, and PlaneFullError if the shared tables are full. Then nothing has
        changed.
        """
        check_possible(config)
        known = self._groups.get(config.group_name)
        self._groups[config.group_name] = config
        try:
            self._on_change(config.group_name)
        except PlaneFullError:  # a saved group without a place would stop the next start
            if known is None:
                del self._groups[config.group_name]
            else:
                self._groups[config.group_name] = known
            raise
        self._audit.add(Kind.GROUP, config.group_name, None if known is None else known.to_json(), config.to_json())
        self._note_change(config.group_name, now_ms)

    def delete(self, group: str, now_ms: int) -> bool:
        """Delete a group. False if there was none."""
        self._forbidden.pop(group, None)
        known = self._groups.pop(group, None)
        if known is None:
            return False
        self._audit.add(Kind.GROUP, group, known.to_json(), None)
        self._client_names.delete_group(group)
        self._changed(group, now_ms)
        return True

    # ---- forbidden topics (353) ----

    def is_forbidden(self, group: str, topic: str) -> bool:
        """True if the group may not read the topic."""
        return bool(self._forbidden.get(group, {}).get(topic, 0) & FORBIDDEN_READ)

    def set_forbidden(self, group: str, topic: str, forbidden: bool, now_ms: int) -> None:
        """Allow or forbid reading. Raises RequestError if FORBIDDEN_MAX pairs are forbidden already."""
        if forbidden and sum(map(len, self._forbidden.values())) >= FORBIDDEN_MAX:
            text = f"group {group}: {FORBIDDEN_MAX} pairs of a group and a forbidden topic are kept already"
            raise RequestError(text, field="group", code=ResponseCode.SYSTEM_ERROR, limit=FORBIDDEN_MAX)
        before, after = {"readable": not self.is_forbidden(group, topic)}, {"readable": not forbidden}
        self._audit.add(Kind.PERMISSION, f"{topic}@{group}", before, after)
        topics = self._forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        topics[topic] = bits | FORBIDDEN_READ if forbidden else bits & ~FORBIDDEN_READ
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._forbidden[group]
        self._changed(group, now_ms)

    def replace_forbidden(self, forbidden: dict[str, dict[str, int]], now_ms: int) -> None:
        """Replace the table by another broker's (a slave by its master's)."""
        changed = {
            group for group in self._forbidden.keys() | forbidden if self._forbidden.get(group) != forbidden.get(group)
        }
        for group in changed:
            self._audit.add(Kind.PERMISSION, f"*@{group}", self._forbidden.get(group), forbidden.get(group))
        self._forbidden = {group: dict(topics) for group, topics in forbidden.items() if topics}
        for group in changed:
            self._changed(group, now_ms)

    def has_forbidden(self, group: str) -> bool:
        """True if any topic is forbidden for the group."""
        return group in self._forbidden

    # ---- file and body ----

    def body(self, groups: Iterable[str] | None = None) -> dict[str, Any]:
        """The content of subscriptionGroup.json, or its part for the named groups."""
        chosen = self._groups if groups is None else groups
        return self._head() | {"subscriptionGroupTable": {name: self._groups[name].to_json() for name in chosen}}

    @property
    def version(self) -> object:
        """A value that differs whenever the text of all groups differs."""
        return self.changes, self.data_version.copy()

    def body_json(self, groups: Iterable[str] | None = None) -> bytes:
        """The text of code 201: all groups, or the named ones."""
        return finish(self.body_steps(groups))

    def body_steps(self, groups: Iterable[str] | None = None) -> Steps[bytes]:
        """`body_json` in steps, of the groups at the first step."""
        chosen = self._groups if groups is None else {name: self._groups[name] for name in groups}
        text = bytearray(json_body.write_body(self._head())[:-1] + b",")
        yield from self._texts.add_member(text, list(chosen.items()))
        return bytes(text + b"}")

    def file_text(self) -> str:
        """The content of subscriptionGroup.json."""
        return "".join(self.file_parts())

    def file_parts(self) -> Iterator[str]:
        """`file_text` in parts, of the groups at the first part."""
        return self._texts.file_parts(self._head(), list(self._groups.items()))

    def _head(self) -> dict[str, Any]:
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return {"dataVersion": self.data_version.to_json(), "forbiddenTable": forbidden}

    def load(self, value: dict[str, Any], now_ms: int, leave_out: LeaveOut = file_entries.ignore) -> None:
        """Load subscriptionGroup.json and add the system groups."""
        self.data_version = file_entries.version_of(value, now_ms, leave_out)
        table = json_body.mapping(value, "subscriptionGroupTable")
        self._groups.update(file_entries.possible_entries(table, "group", _from_file, leave_out))
        forbidden = json_body.mapping(value, "forbiddenTable")
        self._forbidden.update(file_entries.possible_entries(forbidden, "forbidden topics of", _forbidden, leave_out))
        for group in sorted(names.SYSTEM_GROUPS):
            if group not in self._groups:
                self._groups[group] = SubscriptionGroupConfig(group, consume_broadcast_enable=True)
        self._sorted = None
        for group in self._groups:
            self._on_change(group)
        self.dirty = True

    def _changed(self, group: str, now_ms: int) -> None:
        self._note_change(group, now_ms)
        self._on_change(group)

    def _note_change(self, group: str, now_ms: int) -> None:
        self._texts.forget(group)
        self._sorted = None
        self.data_version.next(now_ms)
        self.dirty = True
        self.changes += 1


def check_possible(config: SubscriptionGroupConfig) -> None:
    """Raise RequestError for a name that exceeds the shared tables, and for numbers out of range."""
    check_group_name(config.group_name)
    if not 0 <= config.retry_queue_nums <= 65535:
        raise RequestError(
            f"group {config.group_name}: retryQueueNums = {config.retry_queue_nums} is outside 0..65535",
            field="retryQueueNums",
            code=ResponseCode.INVALID_PARAMETER,
            limit=65535,
        )


def check_group_name(group: str) -> None:
    """Raise RequestError for a name that exceeds the shared tables. Files and bodies of brokers may hold any."""
    try:
        is_name = 0 < len(group.encode()) <= NAME_BYTES_MAX
    except UnicodeEncodeError:  # the name holds half a surrogate pair
        is_name = False
    if not is_name:
        raise RequestError(
            f"group {group[:80]!r}: a name is 1 to {NAME_BYTES_MAX} bytes of UTF-8",
            field="groupName",
            code=ResponseCode.INVALID_PARAMETER,
            limit=NAME_BYTES_MAX,
        )


def _from_file(name: str, entry: Any) -> SubscriptionGroupConfig:
    """The group of an entry. Its key is its name, as in stock, whatever groupName says."""
    config = SubscriptionGroupConfig.from_json(json_body.mapping({name: entry}, name))
    config.group_name = name
    check_possible(config)
    return config


def _forbidden(group: str, topics: Any) -> dict[str, int]:
    check_group_name(group)
    found = json_body.mapping({group: topics}, group)
    return {str(topic): json_body.as_integer(bits, str(topic)) for topic, bits in found.items()}
