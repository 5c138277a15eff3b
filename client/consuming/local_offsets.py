"""Offsets of a broadcasting member in a file on its host, in the format of RocketMQ's `LocalFileOffsetStore`.

The content is `{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:12}}`. The default path is stock's,
`~/.rocketmq_offsets/<ip>@DEFAULT/<group>/offsets.json`. So a member that moves over from Java, without a namespace,
continues at its offsets. The content is written to a second file, which is then renamed. If the file is missing or
broken, stock's `.bak` is read.
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
from ringmq.remoting.named_files import read_state_file

FILE_BYTES_MAX = 32 << 20
ENTRIES_MAX = 131_072
STOCK_FOLDER = "~/.rocketmq_offsets"


class OffsetFileError(ValueError):
    """The offsets of a broadcasting group cannot be stored in their file."""


def default_offset_file(group: str) -> Path:
    """Return stock's path of the group's offsets on this host."""
    return Path(STOCK_FOLDER).expanduser() / f"{local_ip()}@DEFAULT" / group / "offsets.json"


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Return the file's content, queues in order."""
    return json_body.write_body({"offsetTable": {queue: offsets[queue] for queue in sorted(offsets)}})


def decode_offsets(content: bytes) -> dict[MessageQueue, int]:
    """Return queue -> offset without negative offsets. Raises `BadBody`."""
    table = json_body.queue_mapping(json_body.read_object(content, "offsets"), "offsetTable")
    if len(table) > ENTRIES_MAX:
        raise json_body.bad_body(f"{len(table)} queues, over {ENTRIES_MAX}", "offsetTable")
    numbers = {queue: json_body.as_integer(entry, "offsetTable") for queue, entry in table.items()}
    return {queue: number for queue, number in numbers.items() if number >= 0}


class LocalOffsetFile:
    """The offsets of one member, from `open` to `close`. Only one member at a time may own the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: dict[MessageQueue, int] = {}
        self._changed = False
        self._saving = Lock()  # `save` runs in threads, `put` in one
        self._lock: TextIO | None = None

    def open(self) -> None:
        """Lock the file and read it. Raises `OffsetFileError`."""
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
        """Remember an offset for `save`. Raises `OffsetFileError` over the limit of queues."""
        if queue not in self.offsets and len(self.offsets) >= ENTRIES_MAX:
            raise OffsetFileError(f"offset file {self.path} would hold over {ENTRIES_MAX} queues")
        if self.offsets.get(queue) != offset:
            self.offsets[queue] = offset
            self._changed = True

    def save(self) -> None:
        """Write the changes. The old file stays whole until the new one is on disk. Raises `OffsetFileError`."""
        with self._saving:
            if not self._changed:
                return
            self._changed = False  # offsets that are put from here on are for the next time
            try:
                self._write(encode_offsets(dict(self.offsets)))
            except OSError as error:
                self._changed = True
                reason = error.strerror or error
                raise OffsetFileError(f"offset file {self.path} cannot be written: {reason}") from error

    def close(self) -> None:
        """Unlock the file for other members."""
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
                content = read_state_file(path, FILE_BYTES_MAX)
                if content.strip():
                    return decode_offsets(content)
            except FileNotFoundError:
                continue
            except (OSError, BadBody) as error:
                troubles.append(f"{path}: {error}")
        if troubles:
            raise OffsetFileError(
                f"offsets of a broadcasting group cannot be decoded ({'; '.join(troubles)}); "
                "remove the file to begin anew"
            )
        return {}


class LocalOffsets(QueueOffsets):
    """A broadcasting member's offsets: brokers know the positions, the file has the commits."""

    def __init__(self, client: RemotingClient, routes: RouteTable, timeout_ms: int, file: LocalOffsetFile) -> None:
        super().__init__(client, routes, timeout_ms)
        self._file = file

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the member's own offset, None without one."""
        return self._file.offsets.get(queue)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Remember the offset. `save` writes the file."""
        self._file.put(queue, offset)
