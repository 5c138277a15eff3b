"""Request modes by topic and group, and the file `messageRequestMode.json` (`MessageRequestModeManager`).

As in stock, the mode of a pair outlives the deletion of its topic or group, and counts again for a later one of that
name. A full table gives up pairs whose topic or group is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables import file_entries
from ringmq.broker.tables.file_entries import LeaveOut
from ringmq.broker.tables.groups import check_group_name
from ringmq.broker.tables.topics import check_topic_name
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting import json_body, names
from ringmq.remoting.assignment_bodies import MODE_FILE, MODE_MAP, POP, PULL, RequestMode, read_modes
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.store.config_files import encode_config

FILE = MODE_FILE
MODES_MAX = 16_384
"""Pairs that requests may make. All of them with the longest names still fit into one frame (402)."""
STEP_PAIRS = 32
"""Pairs of one part of a file or an answer: some 1 ms."""

PairKey = tuple[str, str]
"""(topic, group)"""


class RequestModeTable:
    """The modes that operators have set."""

    def __init__(self, audit: AuditTrail | None = None) -> None:
        """`audit`: gets each change. None for a table that is only loaded."""
        self._audit = AuditTrail() if audit is None else audit
        self._modes: dict[str, dict[str, RequestMode]] = {}
        self._count = 0
        self.dirty = False
        self.changes = 0
        """Number of changes since the start."""

    def __len__(self) -> int:
        """Number of pairs of a topic and a group."""
        return self._count

    def __iter__(self) -> Iterator[RequestMode]:
        return (mode for groups in self._modes.values() for mode in groups.values())

    def get(self, topic: str, group: str) -> RequestMode | None:
        """The mode that was set. None if there is none."""
        return self._modes.get(topic, {}).get(group)

    def effective(self, topic: str, group: str, config: BrokerConfig) -> RequestMode:
        """The mode that was set, or the configured default. Retry topics are pulled by default."""
        known = self.get(topic, group)
        if known is not None:
            return known
        if names.is_retry_topic(topic) or config.default_message_request_mode == PULL:
            return RequestMode(topic, group)
        return RequestMode(topic, group, POP, config.default_pop_share_queue_num)

    def put(self, mode: RequestMode) -> None:
        """Set a mode."""
        known = self.get(mode.topic, mode.group)
        if known == mode:
            return
        self._modes.setdefault(mode.topic, {})[mode.group] = mode
        self._count += known is None
        self._note((mode.topic, mode.group), known, mode)

    def check_room(self, mode: RequestMode, is_used: Callable[[PairKey], bool]) -> None:
        """Raise RequestError if a request may not set `mode`, because the table is full of pairs that are in use.

        `is_used`: true for a pair whose topic and group exist.
        """
        if self.get(mode.topic, mode.group) is None and self._count >= MODES_MAX:
            self._forget([pair for pair in self._pairs() if not is_used(pair)])
            if self._count >= MODES_MAX:
                raise RequestError(
                    f"no room for more request modes: the broker keeps {self._count} of at most {MODES_MAX} pairs of a "
                    "topic and a group",
                    field="consumerGroup",
                    code=ResponseCode.SYSTEM_ERROR,
                    limit=MODES_MAX,
                )

    def replace(self, modes: Iterable[RequestMode]) -> None:
        """Replace the table by another broker's (a slave's by its master's). The limit of requests does not count."""
        wanted = {(mode.topic, mode.group): mode for mode in modes}
        self._forget([pair for pair in self._pairs() if pair not in wanted])
        for mode in wanted.values():
            self.put(mode)

    def _forget(self, pairs: Iterable[PairKey]) -> None:
        for topic, group in pairs:
            known = self._modes[topic].pop(group)
            self._count -= 1
            if not self._modes[topic]:
                del self._modes[topic]
            self._note((topic, group), known, None)

    def _note(self, pair: PairKey, before: RequestMode | None, after: RequestMode | None) -> None:
        values = (None if mode is None else mode.to_json() for mode in (before, after))
        self._audit.add(Kind.MODE, "@".join(pair), *values)
        self.dirty = True
        self.changes += 1

    def _pairs(self) -> list[PairKey]:
        return [(mode.topic, mode.group) for mode in self]

    # ---- file and body ----

    def body_steps(self) -> Steps[bytes]:
        """The text of code 402 in steps, of the modes at the first step."""
        text = bytearray(b'{"%s":{' % MODE_MAP.encode())
        topic = None
        for number, mode in enumerate(list(self), 1):
            key = json_body.write_body({mode.group: mode.to_json()})[1:-1]
            if mode.topic == topic:
                text += b"," + key
            else:
                head = json_body.write_body({mode.topic: {}})[1:-2]
                text += (b"" if topic is None else b"},") + head + key
                topic = mode.topic
            if number % STEP_PAIRS == 0:
                yield
        return bytes(text + (b"}}" if topic is None else b"}}}"))

    def file_text(self) -> str:
        """The content of messageRequestMode.json."""
        return "".join(self.file_parts())

    def file_parts(self) -> Iterator[str]:
        """`file_text` in parts, of the modes at the first part."""
        modes = list(self)
        if not modes:
            yield encode_config(FILE, {MODE_MAP: {}})
            return
        text = f'{{\n\t"{MODE_MAP}":{{\n'
        topic = None
        for number, mode in enumerate(modes, 1):
            lines = encode_config(FILE, {MODE_MAP: {mode.topic: {mode.group: mode.to_json()}}}).split("\n")
            if mode.topic == topic:
                text += ",\n"
            else:
                text += ("" if topic is None else "\n\t\t},\n") + lines[2] + "\n"
                topic = mode.topic
            text += "\n".join(lines[3:-3])
            if number % STEP_PAIRS == 0:
                yield text
                text = ""
        yield text + "\n\t\t}\n\t}\n}"

    def load(self, value: dict[str, Any], leave_out: LeaveOut = file_entries.ignore) -> None:
        """Load messageRequestMode.json. Raises BadBody for a table that is no object."""
        for mode in possible_modes(read_modes(value, leave_out), leave_out):
            self._count += self.get(mode.topic, mode.group) is None
            self._modes.setdefault(mode.topic, {})[mode.group] = mode


def possible_modes(modes: Iterable[RequestMode], leave_out: LeaveOut) -> Iterator[RequestMode]:
    """The modes of a file or of a master whose names a topic and a group can have. The others are left out."""
    for mode in modes:
        try:
            check_topic_name(mode.topic)
            check_group_name(mode.group)
        except RequestError as error:
            name = f"{mode.topic}@{mode.group}"[: file_entries.NAME_CHARS_SHOWN]
            leave_out(f"the request mode of {name!r} is left out: {error}")
        else:
            yield mode
