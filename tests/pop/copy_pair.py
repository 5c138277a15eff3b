"""A master with a worker `pop`, and a slave that copies its memory: both without a network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.pop.image_file import IMAGE, PAGE
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.names import Names
from ringmq.pop.page_changes import open_changes
from ringmq.pop.slave_progress import SlaveProgress
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.broker.fakes import FakePlane, Harness, make_harness
from tests.pop.memory_kit import ENTRIES, open_memory, put
from tests.pop.test_snapshots import Taker

END = 2000
"""The end of the log. It was 1000 when snapshots began (tests/pop/test_snapshots.py)."""


class Master:
    """A store with POP's memory and control of its broker."""

    def __init__(self, root: Path, entries: int = ENTRIES) -> None:
        root.mkdir(exist_ok=True)
        self.root, self.entries = root, entries
        self.control: Harness = make_harness({"storePathRootDir": str(root)})
        self.control.plane.watermarks.append_offset = END
        self.open()

    def open(self) -> None:
        """Start the worker."""
        self.memory: PopMemory = open_memory(self.root, entries=self.entries)
        self.names = Names(self.memory.folder, was_cut=self.memory.was_cut)
        changes = open_changes(self.memory.folder, int(self.memory.layout.bytes) // PAGE)
        self.taker = Taker(self.memory, names=self.names, changes=changes)

    def put(self, *indexes: int) -> None:
        """Make entries, and have them in a snapshot."""
        for index in indexes:
            put(self.memory, index, index)
        self.taker.write()

    def close(self, *, clean: bool = False) -> None:
        """End the worker."""
        self.taker.snapshots.close()
        self.names.close()
        self.memory.close(clean=clean)
        if not clean:
            remove_lasting(self.root)

    def ask(self, fields: dict[str, str]) -> RemotingCommand:
        answer: RemotingCommand = self.control.ask(RequestCode.POP_PROGRESS, fields)
        return answer


class Slave:
    """Control of a slave."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root, self.now_ms, self.bytes = root, 1_000_000, 0
        self.progress = SlaveProgress(LiveConfig(BrokerConfig(), FakePlane().watermarks), root)
        self.sync: Any = self.progress.sync
        self.sync.master_is("m", self.now_ms)

    def copy(self, master: Master, own_end: int = END) -> int:
        """Ask until nothing is new. Returns the number of requests."""
        self.now_ms += 60_000
        asked = 0
        while (ask := self.sync.due(self.now_ms, own_end)) is not None:
            asked += 1
            answer = master.ask(dict(ask.ext_fields))
            assert answer.code == 0, answer.remark
            self.bytes += len(answer.body)
            self.sync.answered(ask, answer, self.now_ms)
            self.save(own_end)
        return asked

    def save(self, own_end: int = END) -> None:
        """Turns of control, until the thread has nothing to do."""
        until = time.monotonic() + 20
        self.progress.save(own_end, self.now_ms)
        while self.progress._applied is not None:
            assert time.monotonic() < until
            time.sleep(0.0002)  # span: paces the turns, as the loop of control does
            self.progress.save(own_end, self.now_ms)


def image_of(root: Path) -> bytes:
    """The image without zeros at its end."""
    return (root / "pop" / IMAGE).read_bytes().rstrip(b"\0")
