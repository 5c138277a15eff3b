"""Slave synchronisation: the requests of a slave to its master beside the log, and their answers. No IO.

    idle --due--> log's end --> topics --> consumer offsets --> groups --> request modes
                      |          ^  |                                          |
     idle <--too short+          +--+ next page      idle <-- files of guests -+

The slave replaces a whole table at a time. A master that has lost its disk would thus empty the slave's tables, too. A
RingMQ master holds such a slave off. A stock one goes on as before; only its log's end shows the loss.

One request is in flight at a time. A table whose request fails is left for the next pass, and the others go on. If the
master does not answer at all, the pass ends and is repeated after growing pauses. Requests are RocketMQ's
(`SlaveSynchronize`): 5.3.3 answers topics (21) and groups (201) whole. Later versions send pages of at most 2000
entries if the request asks for a page. Differences: the first pass begins as soon as the master is known, the next
every `period_ms` (stock: after a minute, every minute), and no entry of a last page is left out.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, field

from ringmq.ipc.guests import CopiedFile
from ringmq.ipc.named_functions import function_of
from ringmq.remoting import json_body
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.assignment_bodies import RequestMode, read_modes
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, TopicConfigTable
from ringmq.remoting.errors import BadBody, RemotingError

PERIOD_MS = 10_000
RETRY_FIRST_MS = 1000
PAGE_ENTRIES_MAX = 2000
PASS_MS_MAX = 60_000
"""Time limit of a pass, because pages never end while the table keeps changing."""
TIMEOUT_MS: dict[int, int] = {
    RequestCode.GET_BROKER_HA_STATUS: 3000,
    RequestCode.GET_ALL_TOPIC_CONFIG: 30_000,
    RequestCode.GET_ALL_CONSUMER_OFFSET: 3000,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: 30_000,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: 3000,
}
"""The first requests of one pass in order, with stock's timeouts. The very first is ours. Files of guests come last."""
FILE_TIMEOUT_MS = 3000
OPTIONAL = frozenset({RequestCode.GET_ALL_MESSAGE_REQUEST_MODE})
"""Requests that a master may refuse: RocketMQ 4.9 does not know them."""
_PAGED: dict[int, tuple[str, str, str]] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: ("topicSeq", "maxTopicNum", "totalTopicNum"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ("groupSeq", "maxGroupNum", "totalGroupNum"),
}

OffsetKey = tuple[str, str]
"""(topic, group)"""


class ConsumerOffsets(Struct, frozen=True):
    """The answer to 43: next offset by queue id of each (topic, group)."""

    data_version: DataVersion
    offsets: dict[OffsetKey, dict[int, int]]
    left_out: tuple[str, ...] = ()
    """A line about each entry that cannot be read. A stock master serves what its file holds."""


class RequestModes(Struct, frozen=True):
    """The answer to 402."""

    modes: tuple[RequestMode, ...]
    left_out: tuple[str, ...] = ()
    """A line about each entry that cannot be read."""


class FileText(Struct, frozen=True):
    """The text of a guest's file."""

    code: int
    text: str


Synced = TopicConfigTable | ConsumerOffsets | GroupConfigTable | RequestModes | FileText
"""One whole table of the master."""


class Ask(Struct, frozen=True):
    """A request to send now. `answered` or `failed` reports its outcome."""

    address: str
    code: int
    ext_fields: dict[str, str]
    timeout_ms: int

    def command(self) -> RemotingCommand:
        """The request."""
        return RemotingCommand.request(self.code, self.ext_fields)


class SlaveSync(Struct):
    """The schedule of requests to the master."""

    period_ms: int = PERIOD_MS
    files: tuple[CopiedFile, ...] = ()
    master: str = ""
    passes: int = 0
    """Passes that have updated every table."""
    next_ms: int = 0
    """Start of the next pass."""
    _own_end: int = 0
    _began_ms: int = 0
    _place: int = 0
    _is_asking: bool = False
    _is_partial: bool = False
    _failures: int = 0
    _pages: _Pages = field(default_factory=lambda: _Pages())

    def master_is(self, address: str, now_ms: int) -> None:
        """Set the master's broker address, "" while none is known. A pass with a new master begins at once."""
        if address == self.master:
            return
        self.master = address
        self._failures = 0
        self._end(now_ms)

    def due(self, now_ms: int, own_end: int = 0) -> Ask | None:
        """The request to send now. None if there is none. `own_end`: the current end of our log."""
        if not self.master or self._is_asking or now_ms < self.next_ms:
            return None
        if self._place == 0 and not self._pages.count:
            self._began_ms, self._is_partial, self._own_end = now_ms, False, own_end
        code = self._order[self._place]
        self._is_asking = True
        return Ask(self.master, code, self._pages.ext_fields(code), TIMEOUT_MS.get(code, FILE_TIMEOUT_MS))

    def answered(self, ask: Ask, answer: RemotingCommand, now_ms: int) -> Synced | None:
        """The table that the answer completes. None for a page in the middle.

        Raises RemotingError if the answer is invalid; the pass goes on all the same. Raises it, too, if the master's
        log is too short or the answer about its end is invalid; then the pass ends.
        """
        if ask.address != self.master:
            return None
        self._is_asking = False
        self._failures = 0
        if ask.code == RequestCode.GET_BROKER_HA_STATUS:
            self._compare_ends(answer, now_ms)
            return None
        try:
            synced = self._take(ask, answer)
        except RemotingError:
            self._skip(now_ms)
            raise
        if synced is not None:
            self._advance(now_ms)
        elif now_ms - self._began_ms > PASS_MS_MAX:
            self._skip(now_ms)
        return synced

    def refused(self, ask: Ask, now_ms: int) -> None:
        """Leave this table out of the pass, because the master has answered with an error."""
        if ask.address == self.master:
            self._is_asking = False
            if ask.code in OPTIONAL or any(file.code == ask.code and file.is_optional for file in self.files):
                self._advance(now_ms)
            else:
                self._skip(now_ms)

    def failed(self, ask: Ask, now_ms: int) -> None:
        """End the pass, because the master has not answered. The next pass begins after a pause."""
        if ask.address != self.master:
            return
        pause_ms = min(RETRY_FIRST_MS << min(self._failures, 6), self.period_ms)
        self._failures += 1
        self._end(now_ms + pause_ms)

    def _compare_ends(self, answer: RemotingCommand, now_ms: int) -> None:
        try:
            end = master_log_end(answer)
        except RemotingError:
            self._end(now_ms + self.period_ms)
            raise
        if end >= self._own_end:
            self._advance(now_ms)
            return
        self._end(now_ms + self.period_ms)
        raise json_body.bad_body(
            f"the master's log ends at {end}, this slave's at {self._own_end}: "
            "topics, groups and offsets of this slave stay",
            "masterCommitLogMaxOffset",
        )

    def _take(self, ask: Ask, answer: RemotingCommand) -> Synced | None:
        match ask.code:
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                return decode_consumer_offsets(answer.body)
            case RequestCode.GET_ALL_TOPIC_CONFIG:
                topics = TopicConfigTable.from_json(json_body.read_object(answer.body, "TopicConfigSerializeWrapper"))
                whole = self._pages.add(dict(topics.topics), topics.data_version, _total(ask.code, answer))
                return None if whole is None else TopicConfigTable(whole, topics.data_version)
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                page = GroupConfigTable.decode(answer.body)
                whole = self._pages.add(dict(page.groups), page.data_version, _total(ask.code, answer))
                return None if whole is None else GroupConfigTable(whole, page.data_version, page.forbidden)
            case RequestCode.GET_ALL_MESSAGE_REQUEST_MODE:
                return decode_request_modes(answer.body)
        return decode_file(next(file for file in self.files if file.code == ask.code), answer.body)

    @property
    def _order(self) -> tuple[int, ...]:
        return (*TIMEOUT_MS, *(file.code for file in self.files))

    def _skip(self, now_ms: int) -> None:
        self._is_partial = True
        self._advance(now_ms)

    def _advance(self, now_ms: int) -> None:
        self._pages = _Pages()
        self._place += 1
        if self._place == len(self._order):
            self.passes += not self._is_partial
            self._end(max(now_ms, self._began_ms + self.period_ms))

    def _end(self, next_ms: int) -> None:
        self._place, self._is_asking, self.next_ms = 0, False, next_ms
        self._pages = _Pages()


class _Pages(Struct):
    """The pages of one table so far."""

    entries: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    data_version: DataVersion | None = None

    def ext_fields(self, code: int) -> dict[str, str]:
        names = _PAGED.get(code)
        if names is None:
            return {}
        version = "" if self.data_version is None else json.dumps(self.data_version.to_json(), separators=(",", ":"))
        return {names[0]: str(self.count), "dataVersion": version, names[1]: str(PAGE_ENTRIES_MAX)}

    def add(self, page: dict[str, Any], data_version: DataVersion, total: int | None) -> dict[str, Any] | None:
        """The whole table if this page completes it. After a change of version the pages begin again with the first."""
        if total is None:
            return page
        if self.data_version is not None and data_version != self.data_version:
            self.entries, self.count = {}, 0
        self.data_version = data_version
        self.entries |= page
        self.count += len(page)
        if not page and self.count < total:
            raise json_body.bad_body(f"an empty page after {self.count} of {total} entries", "page")
        return self.entries if self.count >= total else None


def _total(code: int, answer: RemotingCommand) -> int | None:
    """Number of entries of the whole table. None from a master without pages."""
    text = (answer.ext_fields or {}).get(_PAGED[code][2])
    return None if text is None else json_body.as_integer(text, "total")


def master_log_end(answer: RemotingCommand) -> int:
    """The end of the master's log from its answer to 907. Raises `BadBody`."""
    value = json_body.read_object(answer.body, "HARuntimeInfo")
    return json_body.as_integer(value.get("masterCommitLogMaxOffset", 0), "masterCommitLogMaxOffset")


def decode_consumer_offsets(body: bytes) -> ConsumerOffsets:
    """Decode the body of the answer to 43. An entry that cannot be read is left out. Raises `BadBody` for a body
    without a table."""
    value = json_body.read_object(body, "ConsumerOffsetSerializeWrapper")
    offsets: dict[OffsetKey, dict[int, int]] = {}
    left_out: list[str] = []
    for name, queues in json_body.mapping(value, "offsetTable").items():
        topic, separator, group = str(name).partition("@")
        if not separator or not isinstance(queues, dict):
            left_out.append(f"{str(name)[:64]!r} is left out: wanted topic@group")
            continue
        try:
            offsets[topic, group] = {
                json_body.as_integer(queue_id, "queueId"): json_body.as_integer(offset, "offset")
                for queue_id, offset in queues.items()
            }
        except BadBody as error:
            left_out.append(f"{str(name)[:64]!r} is left out: {error}")
    version = DataVersion.from_json(json_body.mapping(value, "dataVersion"))
    return ConsumerOffsets(version, offsets, tuple(left_out))


def decode_request_modes(body: bytes) -> RequestModes:
    """Decode the body of the answer to 402. An entry that cannot be read is left out. Raises `BadBody` for a body
    without a table."""
    left_out: list[str] = []
    modes = tuple(read_modes(json_body.read_object(body, "MessageRequestModeSerializeWrapper"), left_out.append))
    return RequestModes(modes, tuple(left_out))


def decode_file(file: CopiedFile, body: bytes) -> FileText:
    """Check the text of a guest's file: a JSON object that stays as it is. Raises `BadBody`."""
    value = json_body.read_object(body, file.file)
    if file.check:
        function_of(file.check)(value)
    return FileText(file.code, body.decode("utf-8", "replace"))
