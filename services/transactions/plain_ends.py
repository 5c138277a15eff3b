"""Takes plain ends of transactions out of the inbox in C, and hands those that C leaves to the service.

`native/src/services/plain_ends.h` says which are plain. `decoded` is the twin: it decodes one request as the workers
do. An end that is not plain stays in the inbox for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ringmq.broker.requests.records import host_text, request_of
from ringmq.broker.requests.request import Connection, Request
from ringmq.ipc.asks import Ask
from ringmq.native import ffi, lib
from ringmq.remoting.client_headers import EndTransactionRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, SerializeType
from ringmq.services.transactions import ends

_ENCODINGS = {
    lib.RMQ_SERIALISE_JSON: SerializeType.JSON,
    lib.RMQ_SERIALISE_BINARY: SerializeType.ROCKETMQ,
}


class EndService(Protocol):
    """The service, as this module needs it."""

    def take_plain(self, room: int) -> int:
        """Take plain ends from the front of the inbox. Returns their number."""

    def send_plain(self) -> Iterator[Any]:
        """Send plain ends whose time has come. Yields those for `take` (struct rmq_plain_end)."""

    def take(self, request: Request, header: EndTransactionRequestHeader) -> None:
        """Take an end that is a commit or a rollback. Its answer follows."""


class PlainEnds:
    """Implements PlainRequests of the intake. Without room in the service, ends stay in the inbox for `on_request`,
    which refuses them."""

    def __init__(self, service: EndService) -> None:
        self._service = service

    def take(self, room: int, reader_of: Callable[[int, int], int | None], now_ms: int) -> tuple[int, list[Request]]:
        """See PlainRequests."""
        count = self._service.take_plain(room)
        taken: list[Request] = []
        for row in self._service.send_plain():
            reader = reader_of(row.record.role, row.record.role_generation)
            if reader is None:
                continue
            request, header = request_of_row(row, reader, now_ms)
            self._service.take(request, header)
            taken.append(request)
        return count, taken


def request_of_row(row: Any, reader: int, now_ms: int) -> tuple[Request, EndTransactionRequestHeader]:
    """The request in a struct rmq_plain_end, without the fields that no answer needs."""
    record = row.record
    host = host_text(bytes(ffi.buffer(record.peer_host, 16 if record.peer_v6 else 4)))
    connection = Connection(
        reader, record.role_generation, record.connection, record.connection_generation, host, record.peer_port,
        record.listener == 1,
    )  # fmt: skip
    command = RemotingCommand(
        int(RequestCode.END_TRANSACTION), row.opaque, row.flag, serialize_type=_ENCODINGS[row.serialise]
    )
    request = Request(
        command, connection, now_ms, record.pending, received_mono_ns=record.received_mono_ns,
        frame_bytes=record.frame_length,
    )  # fmt: skip
    header = EndTransactionRequestHeader(
        producer_group=bytes(ffi.buffer(row.group, row.group_length)).decode("ascii"),
        tran_state_table_offset=row.queue_offset, commit_log_offset=row.position,
        commit_or_rollback=row.commit_or_rollback, from_transaction_check=bool(row.from_check), msg_id="",
    )  # fmt: skip
    return request, header


def decoded(record: Ask, connection: Connection, now_ms: int) -> tuple[Request, EndTransactionRequestHeader]:
    """The same by the decoders of every worker. Raises RemotingError, and RequestError for a wrong header."""
    request = request_of(record, connection, now_ms)
    return request, ends.read_end(request.command.ext_fields)
