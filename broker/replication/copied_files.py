"""Files of guests that slaves copy from their master, such as delayOffset.json.

A guest's row names them (ipc/guests.py). A worker of the master writes such a file, and control of the master answers
with its text. Control of a slave saves the text of its master, and answers with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.request import Answer, Request
from ringmq.ipc.guests import CopiedFile, guests
from ringmq.ipc.named_functions import function_of
from ringmq.remoting import json_body
from ringmq.remoting.config_beans import DataVersion
from ringmq.store.config_files import persist_text, read_text
from ringmq.store.layout import CONFIG


class FileState(Struct):
    """A file, as control knows it."""

    row: CopiedFile
    text: str | None = None
    """None without the file."""
    path: Path | None = None

    def read(self) -> str | None:
        """The newest text of the file, which another process writes. That of the last call if it cannot be read now."""
        if self.path is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self.text = read_text(self.path)
        return self.text


class CopiedFiles:
    """The files of all guests of this build. `started_ms`: the version of a file that is not there."""

    def __init__(self, started_ms: int, live: LiveConfig) -> None:
        self.rows = tuple(row for guest in guests() for row in guest.copied_files)
        for row in self.rows:
            if row.check:
                function_of(row.check)  # loaded now: a running control loads no module of a later build
        self.states = {row.code: FileState(row) for row in self.rows}
        self._started_ms, self._live = started_ms, live

    def load(self, root: Path) -> None:
        """Load the files that are there, at the start and when the broker becomes a slave."""
        for state in self.states.values():
            state.path = root / CONFIG / state.row.file
            with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):  # a slave starts without them, too
                state.text = read_text(state.path)

    def take(self, root: Path, code: int, text: str) -> None:
        """Save the text of a slave's master, if it is another one. Raises OSError."""
        state = self.states[code]
        if text == state.text:
            return
        if own := state.row.replaces:
            for name in (own, own + ".bak"):  # the .bak would be read in its place
                (root / CONFIG / name).unlink(missing_ok=True)
        persist_text(root, state.row.file, text)
        state.text = text

    def handlers(self) -> Iterator[tuple[int, Callable[[Request], Answer]]]:
        """Pairs of a request and its handler."""
        return ((code, partial(self._answer, state)) for code, state in self.states.items())

    def _answer(self, state: FileState, request: Request) -> Answer:
        text = state.text if self._live.follows_master else state.read()
        if text is not None:
            return request.reply(body=text.encode())
        version = DataVersion(0, 0, self._started_ms).to_json()
        return request.reply(body=json_body.write_body({"dataVersion": version, state.row.table: {}}))
