"""Where a broadcasting member has got to: a file on its own host, in the format of RocketMQ's `LocalFileOffsetStore`.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:12}}`, at stock's place:
`~/.rocketmq_offsets/<ip>@DEFAULT/<group>/ offsets.json`, so that a member that moves over from Java, without a
namespace, goes on where it was. Written to a second file first and then renamed; a `.bak` of stock's is read where the
file itself is missing or broken.
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TextIO

from ringmq.client.connections.identity import local_ip
from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.offsets import QueueOffsets
from ringmq.remoting import json_body
from ringmq.remoting.errors import BadBody
from ringmq.remoting.message_queue import MessageQueue

FILE_BYTES_MAX = 32 << 20
ENTRIES_MAX = 131_072
STOCK_FOLDER = "~/.rocketmq_offsets"


class OffsetFileError(ValueError):
    """The offsets of a broadcasting group cannot be kept where they should be."""


def default_offset_file(group: str) -> Path:
    """Stock's place of the group's offsets on this host."""
    return Path(STOCK_FOLDER).expanduser() / f"{local_ip()}@DEFAULT" / group / "offsets.json"


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The file's content, queues in order."""
    return json_body.write_body({"offsetTable": {queue: offsets[queue] for queue in sorted(offsets)}})


def decode_offsets(content: bytes) -> dict[MessageQueue, int]:
    """Queue -> offset; negative ones are left out. Raises `BadBody`."""
    table = json_body.queue_mapping(json_body.read_object(content, "offsets"), "offsetTable")
    if len(table) > ENTRIES_MAX:
        raise json_body.bad_body(f"{len(table)} queues, over {ENTRIES_MAX}", "offsetTable")
    numbers = {queue: json_body.as_integer(entry, "offsetTable") for queue, entry in table.items()}
    return {queue: number for queue, number in numbers.items() if number >= 0}


class LocalOffsetFile:
    """The offsets of one member, from `open` to `close`. Only one member at a time may have the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: dict[MessageQueue, int] = {}
        self._changed = False
        self._saving = Lock()  # `save` runs in threads, `put` in one
        self._lock: TextIO | None = None

    def open(self) -> None:
        """Take the file and read it. Raises `OffsetFileError`."""
        lock: TextIO | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = self.path.with_name(self.path.name + ".lock").open("w")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            assert lock is not None
            lock.close()
            raise OffsetFileError(
                f"offset file {self.path} is in use by another member of the group on this host; "
                "give each member its own offset_file"
            ) from None
        except OSError as error:
            raise OffsetFileError(f"offset file {self.path} cannot be used: {error.strerror or error}") from error
        self._lock = lock
        try:
            self.offsets = self._read()
        except OffsetFileError:
            self.close()
            raise

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Remember an offset; `save` writes it. Raises `OffsetFileError` over the limit of queues."""
        if queue not in self.offsets and len(self.offsets) >= ENTRIES_MAX:
            raise OffsetFileError(f"offset file {self.path} would hold over {ENTRIES_MAX} queues")
        if self.offsets.get(queue) != offset:
            self.offsets[queue] = offset
            self._changed = True

    def save(self) -> None:
        """Write what has changed: the old file stays whole until the new one is on the disk. Raises
        `OffsetFileError`."""
        with self._saving:
            if not self._changed:
                return
            self._changed = False  # what is put from here on is for the next time
            try:
                self._write(encode_offsets(dict(self.offsets)))
            except OSError as error:
                self._changed = True
                reason = error.strerror or error
                raise OffsetFileError(f"offset file {self.path} cannot be written: {reason}") from error

    def close(self) -> None:
        """Let others have the file."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _write(self, content: bytes) -> None:
        beside = self.path.with_name(self.path.name + ".tmp")
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)

    def _read(self) -> dict[MessageQueue, int]:
        troubles: list[str] = []
        for path in (self.path, self.path.with_name(self.path.name + ".bak")):
            try:
                with path.open("rb") as file:
                    content = file.read(FILE_BYTES_MAX + 1)
                if len(content) > FILE_BYTES_MAX:
                    raise json_body.bad_body(f"over {FILE_BYTES_MAX} bytes", "offsets")
                if content.strip():
                    return decode_offsets(content)
            except FileNotFoundError:
                continue
            except (OSError, BadBody) as error:
                troubles.append(f"{path}: {error}")
        if troubles:
            raise OffsetFileError(
                f"offsets of a broadcasting group do not read ({'; '.join(troubles)}); remove the file to begin anew"
            )
        return {}


class LocalOffsets(QueueOffsets):
    """A broadcasting member's offsets: positions are asked of brokers, commits go to the file."""

    def __init__(self, client: RemotingClient, routes: RouteTable, timeout_ms: int, file: LocalOffsetFile) -> None:
        super().__init__(client, routes, timeout_ms)
        self._file = file

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The member's own offset, None when it has none."""
        return self._file.offsets.get(queue)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Remember the offset; `save` writes the file."""
        self._file.put(queue, offset)
