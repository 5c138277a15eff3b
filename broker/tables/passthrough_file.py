"""delayOffset.json and timermetrics as slaves get them: the newest text on disk, which a worker writes."""

from __future__ import annotations

import contextlib
from pathlib import Path

from msgspec import Struct

from ringmq.store.config_files import read_text


class PassthroughFile(Struct):
    """The text of a file. None without the file."""

    text: str | None = None
    path: Path | None = None
    """The file that another process writes. None on a slave, which has the text of its master."""

    def read(self) -> str | None:
        """The newest text. That of the last call if the file cannot be read now."""
        if self.path is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self.text = read_text(self.path)
        return self.text
