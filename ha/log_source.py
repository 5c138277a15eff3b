"""The log of another broker, read by request HA_READ_LOG. An adoption gets its bytes from it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ringmq.ha.broker_client import BrokerClient
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.store.adoption import ReadChunk

CHUNK_BYTES_MAX = 1 << 20
TIMEOUT_MS = 10_000


@contextlib.contextmanager
def open_log_source(address: str, timeout_ms: int = TIMEOUT_MS) -> Iterator[ReadChunk]:
    """A reader of the log of the broker at `address`, host:port: (offset, length) -> at least one byte, at most 1 MiB.

    `timeout_ms` is for each call. The reader raises OSError if the log has no byte at the offset, or if there is no
    valid answer. This function raises OSError if `address` is no host:port.
    """
    try:
        client = BrokerClient(address)
    except ValueError as error:
        raise OSError(f"{address!r} is not host:port") from error

    def read_chunk(offset: int, length: int) -> bytes:
        fields = {"offset": str(offset), "maxBytes": str(min(length, CHUNK_BYTES_MAX))}
        try:
            answer = client.ask(RemotingCommand.request(RequestCode.HA_READ_LOG, fields), timeout_ms)
        except RemotingError as error:
            raise OSError(f"{address}: {error}") from error
        body = bytes(answer.body)
        if answer.code or not 0 < len(body) <= length:
            raise OSError(f"{address} has no {length} bytes at {offset}: {answer.code} {answer.remark or ''}".rstrip())
        return body

    try:
        yield read_chunk
    finally:
        client.close()
