"""Staged chunks in the log: the check of a chunk against its commit, and its bytes for publication.

The check covers every reason for which write could refuse a piece later, because a decision is final. Its remarks
never show values of a staged message: the request may name a chunk of another writer, whose query id is a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import ffi, lib
from ringmq.remoting import staged_writes
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.properties import decode_properties
from ringmq.remoting.staged_writes import CommitRequest, StagedChunk
from ringmq.services.appends import Origin
from ringmq.services.log_view import LogView
from ringmq.services.staged.commit_records import Piece
from ringmq.services.staged.events import Unsound
from ringmq.services.topics import Topics

QUEUE_DIGITS_MAX = 9
SYS_BORN_HOST_V6 = lib.RMQ_SYS_BORN_HOST_V6
CAUSES = {
    lib.RMQ_CAUSE_BATCH_ELEMENT: "an element of the batch is malformed",
    lib.RMQ_CAUSE_BATCH_PAIRS: "properties of an element hold a NUL character or a pair without name or 0x01",
    lib.RMQ_CAUSE_BATCH_ALONE: "an element has DELAY > 0 or TRAN_MSG = true, which only a single message may have",
    lib.RMQ_CAUSE_MESSAGE_SIZE: "an element, or the whole batch, is too large to be stored",
}


class StagedBody(Struct, frozen=True):
    """A chunk for publication. `body` is a view of the mapped log."""

    body: memoryview
    origin: Origin


class StagedBodies:
    """Reads the log. `settings`: struct rmq_settings of the plane, by which write checks requests."""

    def __init__(self, log: LogView, topics: Topics, config: Callable[[], BrokerConfig], settings: Any) -> None:
        self._log = log
        self._topics = topics
        self._config = config
        self._settings = settings
        self._view = ffi.new("struct rmq_record_view *")

    def inspect(self, request: CommitRequest, chunk: StagedChunk) -> Piece | Unsound:
        """The piece of a chunk, or the reason why there is none."""
        where = f"partition {chunk.partition}, chunk {chunk.sequence}"
        found = self._properties(chunk)
        if isinstance(found, str) and self._is_unconfirmed(chunk):
            late = f"commitLogOffset = {chunk.commit_log_offset} waits for the disk or for replicas: ask again"
            return Unsound(ResponseCode.SYSTEM_BUSY, f"{where}: {late}")
        if isinstance(found, str):
            return Unsound(ResponseCode.INVALID_PARAMETER, f"{where}: {found}")
        record, properties = found
        topic, queue = properties.get(staged_writes.TARGET_TOPIC, ""), properties.get(staged_writes.TARGET_QUEUE, "")
        if not (queue.isascii() and queue.isdigit() and len(queue) <= QUEUE_DIGITS_MAX):
            return Unsound(ResponseCode.INVALID_PARAMETER, f"{where}: {staged_writes.TARGET_QUEUE} = {queue[:32]!r}")
        expected = chunk.properties(request.query_id, request.batch_id, topic, int(queue))
        for name, value in expected.items():
            if properties.get(name) != value:
                other = f"{name} of the staged message is not {value!r}, as the commit says"
                return Unsound(ResponseCode.INVALID_PARAMETER, f"{where}: {other}")
        measured = self._target(topic, int(queue)) or self._measure(chunk, record, topic)
        if isinstance(measured, Unsound):
            return Unsound(measured.code, f"{where}: {measured.remark}")
        return Piece(chunk.commit_log_offset, topic, int(queue), measured)

    def body(self, commit_log_offset: int, skip: int = 0) -> StagedBody | None:
        """The inspected chunk at this offset, without its first `skip` messages. None if retention has deleted it
        since."""
        raw = self._log.record(commit_log_offset)
        if raw is None or not self._parse(raw, check_crc=False):
            return None
        view = self._view
        size = 16 if view.sys_flag & SYS_BORN_HOST_V6 else 4
        host = bytes(raw[view.born_host_at : view.born_host_at + size])
        port = int.from_bytes(raw[view.born_host_at + size : view.born_host_at + size + 4], "big")
        body = raw[view.body_at : view.body_at + view.body_length]
        skipped = lib.rmq_batch_bytes_of(ffi.from_buffer("uint8_t *", body), len(body), skip)
        return StagedBody(body[skipped:], Origin(view.born_time_ms, host, port))

    def _parse(self, raw: memoryview, *, check_crc: bool) -> bool:
        found = lib.rmq_record_parse(ffi.from_buffer("uint8_t *", raw), len(raw), int(check_crc), self._view)
        return bool(found == lib.RMQ_RECORD_OK)

    def _properties(self, chunk: StagedChunk) -> tuple[memoryview, dict[str, str]] | str:
        """(record, properties) of the staged message, or its defect. The CRC of its body is not computed."""
        offset = chunk.commit_log_offset
        state = self._log.bounds()
        if offset < state.min_offset:
            return f"commitLogOffset = {offset} is below {state.min_offset}: retention has taken the staged message"
        raw = self._log.record(offset)
        if raw is None or not self._parse(raw, check_crc=False) or self._view.physical_offset != offset:
            return f"commitLogOffset = {offset}: no readable message begins there"
        view = self._view
        topic = bytes(raw[view.topic_at : view.topic_at + view.topic_length])
        if topic != staged_writes.STAGED_TOPIC.encode():
            return f"commitLogOffset = {offset}: the message there is of topic {topic[:127]!r}, not a staged one"
        if (view.body_length, view.body_crc) != (chunk.body_bytes, chunk.body_crc):
            said = f"bodyBytes = {chunk.body_bytes}, bodyCrc = {chunk.body_crc}"
            return f"commitLogOffset = {offset}: the staged message there has another size or CRC than {said}"
        text = bytes(raw[view.properties_at : view.properties_at + view.properties_length]).decode("utf-8", "replace")
        return raw, decode_properties(text)

    def _is_unconfirmed(self, chunk: StagedChunk) -> bool:
        """True if the message may be in the log, but not readable yet. A send can be answered while fewer replicas have
        it."""
        offset, state = chunk.commit_log_offset, self._log.bounds()
        end_max = offset + chunk.body_bytes + lib.RMQ_RECORD_OVERHEAD_MAX
        if not state.min_offset <= offset < state.append_offset:
            return False
        return state.confirm_offset < min(end_max, state.append_offset) and self._log.record(offset) is None

    def _target(self, topic: str, queue_id: int) -> Unsound | None:
        """The reason why messages may not be written to this queue. None if they may."""
        found = self._topics.find(topic)
        if found is None:
            return Unsound(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:127]}] not exist, apply first please!")
        if not self._topics.is_writable(found, self._config().broker_permission):
            return Unsound(ResponseCode.NO_PERMISSION, f"sending message to topic[{topic}] is forbidden")
        if queue_id >= found.write_queues:
            return Unsound(ResponseCode.INVALID_PARAMETER, f"request queueId[{queue_id}] is illegal, {found}")
        return None

    def _measure(self, chunk: StagedChunk, staged: memoryview, topic: str) -> Unsound | int:
        """The number of messages of a staged record, or the reason why write would refuse its body."""
        settings = self._settings
        bytes_max = int(settings.message_bytes_max)
        if chunk.body_bytes > bytes_max:
            remark = f"{chunk.body_bytes} bytes are over maxMessageSize {bytes_max}"
            return Unsound(ResponseCode.MESSAGE_ILLEGAL, remark)
        if not self._parse(staged, check_crc=True):
            damaged = f"commitLogOffset = {chunk.commit_log_offset}: the body of the staged message there is damaged"
            return Unsound(ResponseCode.INVALID_PARAMETER, damaged)
        body = staged[self._view.body_at : self._view.body_at + self._view.body_length]
        record, size = ffi.new("struct rmq_record_in *"), ffi.new("struct rmq_batch_size *")
        name = ffi.from_buffer("uint8_t[]", topic.encode())
        record.topic, record.topic_length = name, len(name)
        record.properties[2] = ffi.cast("uint8_t *", settings.additions)
        record.properties_length[2] = settings.additions_length
        record.sys_flag = SYS_BORN_HOST_V6 | (lib.RMQ_SYS_STORE_HOST_V6 if settings.store_host_bytes == 16 else 0)
        limit = bytes_max + lib.RMQ_RECORD_OVERHEAD_MAX
        data: Any = ffi.from_buffer("uint8_t *", body)
        cause = lib.rmq_batch_measure(data, len(body), limit, record, size)
        if not cause and size.bytes + lib.RMQ_BLANK_BYTES > settings.segment_bytes:
            cause = lib.RMQ_CAUSE_MESSAGE_SIZE
        if not cause:
            return int(size.messages)
        return Unsound(ResponseCode.MESSAGE_ILLEGAL, f"element {size.messages}: {CAUSES.get(cause, f'cause {cause}')}")
