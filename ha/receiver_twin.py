"""The rule by which a slave parses its master's stream: the plain twin of native/src/ha/ha_receiver.c, without IO.

    head (12 bytes: i64 offset, i32 size) --size > 0--> body --size bytes--> head ...
      |  size 0: a heartbeat                              |
      +---------------------- a broken rule: `reason`, nothing more is taken

Log and append offset are the same, however the stream is split into pieces (spec ha.md 2.1, 2.3).
"""

from __future__ import annotations

import struct

from ringmq.native import ffi, lib

STARTS_AT = 4
GAP = 5
SIZE = 6
FILE_END = 7
RECORD = 8
"""Numbers of RMQ_LINK_* in native/src/ha/ha_receiver.h."""

TRANSFER_MAX_BYTES = 4 << 20
_HEAD = struct.Struct(">qi")
_RECORD_HEAD = struct.Struct(">II")
_MAGICS = (0xDAA320A7, 0xDAA320AB)
_MAGIC_BLANK = 0xCBD43194
_RECORD_BYTES_MIN = 91


class ReceiverTwin:
    """A log that grows by the bytes given to `feed`. `log` begins at the `append_offset` of the start."""

    def __init__(self, append_offset: int, file_bytes: int) -> None:
        self.append_offset = append_offset
        """End of the last whole record."""
        self.log = bytearray()
        self.reason = 0
        """The reason why the reader takes no more bytes. 0 = none. `reason_offset` is the log offset concerned."""
        self.reason_offset = 0
        self._first = append_offset
        self._file_bytes = file_bytes
        self._head = b""
        self._body_left = 0
        self._in_stream = False

    @property
    def received_offset(self) -> int:
        """End of the received bytes. Beyond append_offset is part of a record."""
        return self._first + len(self.log)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the stream."""
        while data and not self.reason:
            if self._body_left:
                body, data = data[: self._body_left], data[self._body_left :]
                self.log += body
                self._body_left -= len(body)
                self._pass_records()
            else:
                missing = _HEAD.size - len(self._head)
                self._head, data = self._head + data[:missing], data[missing:]
                if len(self._head) == _HEAD.size:
                    self._begin_transfer(*_HEAD.unpack(self._head))
                    self._head = b""

    def end(self) -> bytes:
        """End of the connection: drop a partial record. Returns the remaining log."""
        del self.log[self.append_offset - self._first :]
        self._head, self._body_left, self._in_stream = b"", 0, False
        return bytes(self.log)

    def _begin_transfer(self, offset: int, size: int) -> None:
        room = self._file_bytes - self.received_offset % self._file_bytes
        if offset != self.received_offset:
            self._refuse(GAP if self._in_stream else STARTS_AT, offset)
        elif not 0 <= size <= TRANSFER_MAX_BYTES:
            self._refuse(SIZE, offset)
        elif size > room:
            self._refuse(FILE_END, offset)
        else:
            self._body_left, self._in_stream = size, True

    def _pass_records(self) -> None:
        while not self.reason and self._pass_record():
            pass

    def _pass_record(self) -> bool:
        """True if the record at append_offset was whole and valid."""
        at = self.append_offset - self._first
        left = len(self.log) - at
        room = self._file_bytes - self.append_offset % self._file_bytes
        if left < _RECORD_HEAD.size:
            return False
        size, magic = _RECORD_HEAD.unpack_from(self.log, at)
        is_blank = magic == _MAGIC_BLANK
        plausible = size == room if is_blank else magic in _MAGICS and _RECORD_BYTES_MIN <= size <= room
        if not plausible:
            return self._refuse(RECORD, self.append_offset)
        if left < size:
            return False
        if not is_blank and not self._is_record(bytes(self.log[at : at + size])):
            return self._refuse(RECORD, self.append_offset)
        self.append_offset += size
        return True

    @staticmethod
    def _is_record(data: bytes) -> bool:
        view = ffi.new("struct rmq_record_view *")
        return bool(lib.rmq_record_parse(data, len(data), 0, view) == lib.RMQ_RECORD_OK)

    def _refuse(self, reason: int, offset: int) -> bool:
        self.reason, self.reason_offset = reason, offset
        return False
