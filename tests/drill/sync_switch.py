"""Stalls or fails the fdatasync of a running broker: a switch in the test build of the C core.

It is in flusher.c (the log) and background_sync.c (queues and index).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.native.test_crash_points import crash_build


class SyncSwitch:
    """One letter in a file that flush and dispatch look at behind each sync."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "sync-switch"
        self._set(b"-")

    def _set(self, letter: bytes) -> None:
        with self._path.open("wb", buffering=0) as file:
            file.write(letter)

    @property
    def environment(self) -> Mapping[str, str]:
        """For the broker: the test build and where the switch is."""
        return {"RINGMQ_NATIVE": str(crash_build()), "RINGMQ_SYNC_SWITCH": str(self._path)}

    def fail(self) -> None:
        """Every sync from now on ends with EIO."""
        self._set(b"f")

    def fail_queues(self) -> None:
        """Every sync of queue and index files from now on ends with EIO."""
        self._set(b"q")

    def heal(self) -> None:
        """Syncs tell the truth again; a stalled one ends."""
        self._set(b"-")

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """No sync ends in here."""
        self._set(b"s")
        try:
            yield
        finally:
            self.heal()
