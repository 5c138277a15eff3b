"""Copies of POP's memory for slaves (270006), which control of a master makes from its files.

A copy is the pages that the image got since the slave's snapshot, as a journal, and the lines of `names` that the
slave lacks. It is of one moment: control reads the image while the worker `pop` does not write it, and begins anew at
the next request if the worker has begun meanwhile, or a start of it writes a journal into the image. A slave takes a
copy in pieces of PIECE_BYTES_MAX.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import IO

from msgspec import Struct, field

from ringmq.broker.requests.guest_answers import ON_SLAVE, ControlParts
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.native import lib
from ringmq.pop import names
from ringmq.pop.image_file import (
    END,
    END_MAGIC,
    FOLDER,
    HEAD,
    HEAD_MAGIC,
    IMAGE,
    PAGE,
    Header,
    HeaderError,
    data_ranges,
    has_image,
    read_header,
)
from ringmq.pop.page_changes import Changes, changed_since, read_changes
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError
from ringmq.remoting.pop_copy_headers import PIECE_BYTES_MAX, PopProgressRequestHeader, PopProgressResponseHeader
from ringmq.store.retention import RetentionSettings, used_ratio

STEP_PAGES = 64
"""Pages that one step reads, some 0.3 ms."""
COPIES_MAX = 2
"""Copies that slaves are taking in pieces. A newer one takes the place of that which was asked for the longest ago."""
CHANGED = "the memory of POP has changed while its copy was made, ask again"
"""A large copy may meet that each time: the slave tells its operator. A small one is asked for again at once."""
IDLE_MS_MAX = 10_000
"""Time after which a copy is dropped of which no piece was asked for."""


class _Copy(Struct):
    """A copy that a slave takes. `file`: open until its last piece is taken. `asked_ms`: time of the last request."""

    answer: PopProgressResponseHeader
    file: IO[bytes]
    asked_ms: int


class CopySource(Struct):
    """Answers 270006. `parts`: of control."""

    parts: ControlParts
    _copies: dict[int, _Copy] = field(default_factory=dict)
    _last_id: int = 0
    _is_making: bool = False
    """True while one is made. Other slaves ask again."""

    def answer(self, request: Request) -> Answer | Slices:
        """270006. Raises RequestError."""
        if not self.parts.live.is_master:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, ON_SLAVE)
        asked = _asked(request)
        self._drop_idle(request.now_ms)
        if asked.copy_id is None:
            return Slices(self._begin(request, asked), is_large=True, is_reading=True)
        copy, offset = self._copies.pop(asked.copy_id, None), asked.offset or 0
        if copy is None or not 0 <= offset < copy.answer.size:
            remark = f"there is no copy {asked.copy_id} with a piece at {offset}, begin anew"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        self._copies[asked.copy_id], copy.asked_ms = copy, request.now_ms
        return self._piece(request, copy, offset)

    def _drop_idle(self, now_ms: int) -> None:
        for copy_id in [number for number, copy in self._copies.items() if now_ms - copy.asked_ms > IDLE_MS_MAX]:
            self._copies.pop(copy_id).file.close()

    def _piece(self, request: Request, copy: _Copy, offset: int) -> RemotingCommand:
        copy.file.seek(offset)
        body = copy.file.read(PIECE_BYTES_MAX)
        copy.answer.offset = offset
        if offset + len(body) == copy.answer.size:
            self._copies.pop(copy.answer.copy_id, None)
            copy.file.close()
        return request.reply(ext_fields=copy.answer.encode(), body=body)

    def _begin(self, request: Request, asked: PopProgressRequestHeader) -> Steps[Answer]:
        root = Path(self.parts.live.config.store_path_root_dir)
        if not has_image(root):
            return _without_copy(request, 0, 0)
        if self._is_making:
            return _without_copy(request, asked.run, asked.snapshot)
        self._is_making = True
        try:
            return (yield from self._copied(request, asked, root / FOLDER))
        except OSError as error:
            remark = f"the memory of POP cannot be copied: {error}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        finally:
            self._is_making = False

    def _copied(self, request: Request, asked: PopProgressRequestHeader, folder: Path) -> Steps[Answer]:
        changes = read_changes(folder)
        if changes is None or (changes.run, changes.done) == (asked.run, asked.snapshot):
            return _without_copy(request, asked.run, asked.snapshot)
        with (folder / IMAGE).open("rb", buffering=0) as image:
            header = _header(image)
            if header is None or not changes.is_of(header):
                return _without_copy(request, asked.run, asked.snapshot)
            is_behind = changes.run == asked.run and asked.snapshot < changes.done
            pages = changed_since(folder, asked.snapshot) if is_behind else _all_pages(image, header)
            is_large = len(pages) * PAGE > PIECE_BYTES_MAX
            if is_large and (fault := self._lack_of_room(folder)):
                return request.reply(ResponseCode.SYSTEM_ERROR, fault)
            yield
            from tempfile import SpooledTemporaryFile  # here: control of a broker without slaves starts without it

            file = SpooledTemporaryFile(PIECE_BYTES_MAX, dir=str(folder))  # noqa: SIM115
            try:
                yield from _write_journal(file, image, header, pages)
                journal_bytes = file.tell()
                names_from = _add_names(file, folder, asked)
                if read_changes(folder) != changes or _header(image) != header:
                    file.close()
                    if is_large:
                        return request.reply(ResponseCode.SYSTEM_BUSY, CHANGED)
                    return _without_copy(request, asked.run, asked.snapshot)
            except BaseException:
                file.close()
                raise
        return self._first_piece(request, file, changes, journal_bytes, names_from)

    def _lack_of_room(self, folder: Path) -> str:
        """The reason for which a large copy is not made, "" if there is none. The log needs the rest of the disk."""
        limit = RetentionSettings.from_properties(self.parts.live.config.as_properties()).warning_ratio
        used = used_ratio(folder)
        if used <= limit:
            return ""
        return f"no copy of POP's memory: the disk is {used:.0%} used, diskSpaceWarningLevelRatio is {limit:.0%}"

    def _first_piece(
        self, request: Request, file: IO[bytes], changes: Changes, journal_bytes: int, names_from: int
    ) -> RemotingCommand:
        self._last_id += 1
        answer = PopProgressResponseHeader(
            run=changes.run, snapshot=changes.done, copy_id=self._last_id, offset=0, size=file.tell(),
            journal_bytes=journal_bytes, names_from=names_from, log_end=self.parts.log_end(),
        )  # fmt: skip
        copy = _Copy(answer, file, request.now_ms)
        if answer.size > PIECE_BYTES_MAX:
            if len(self._copies) == COPIES_MAX:
                self._copies.pop(next(iter(self._copies))).file.close()
            self._copies[self._last_id] = copy
        return self._piece(request, copy, 0)


def _asked(request: Request) -> PopProgressRequestHeader:
    asked = PopProgressRequestHeader.decode(request.command.ext_fields or {})
    for name, value in asked.encode().items():
        if int(value) < 0:
            text = f"{name} = {value} is below 0"
            raise RequestError(text, field=name, code=ResponseCode.INVALID_PARAMETER, limit=0)
    return asked


def _without_copy(request: Request, run: int, snapshot: int) -> RemotingCommand:
    answer = PopProgressResponseHeader(
        run=run, snapshot=snapshot, copy_id=0, offset=0, size=0, journal_bytes=0, names_from=0, log_end=0
    )
    return request.reply(ext_fields=answer.encode())


def _header(image: IO[bytes]) -> Header | None:
    try:
        return read_header(os.pread(image.fileno(), PAGE, 0), has_check=True)
    except HeaderError:
        return None  # the worker writes it now, or a start has set the image aside


def _all_pages(image: IO[bytes], header: Header) -> list[int]:
    ranges = data_ranges(image.fileno(), 0, int(header.layout.bytes))
    return [page for begin, end in ranges for page in range(begin // PAGE, -(-end // PAGE))]


def _write_journal(file: IO[bytes], image: IO[bytes], header: Header, pages: list[int]) -> Steps[None]:
    """Write the pages as `ringmq.pop.image_file.JournalWriter` does."""
    head = HEAD.pack(HEAD_MAGIC, lib.RMQ_POP_VERSION, len(pages), header.store_id, header.snapshot)
    file.write(head)
    crc = zlib.crc32(head)
    for at in range(0, len(pages), STEP_PAGES):
        taken = pages[at : at + STEP_PAGES]
        data = b"".join(os.pread(image.fileno(), PAGE, page * PAGE).ljust(PAGE, b"\0") for page in taken)
        file.write(data)
        crc = zlib.crc32(data, crc)
        yield
    data = struct.pack(f"<{len(pages)}I", *pages)
    crc = zlib.crc32(data, crc)
    file.write(data + END.pack(crc, len(pages), header.snapshot, END_MAGIC))


def _add_names(file: IO[bytes], folder: Path, asked: PopProgressRequestHeader) -> int:
    """Write the lines that the slave lacks. Returns the place in its file at which they begin."""
    data = (folder / names.FILE).read_bytes()
    data = data[: data.rfind(b"\n") + 1]
    known = data[: asked.names_bytes]
    is_known = len(known) == asked.names_bytes and zlib.crc32(known) == asked.names_crc
    begin = len(known) if is_known else 0
    file.write(data[begin:])
    return begin
