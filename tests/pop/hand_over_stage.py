"""What the end of the worker `pop` needs, in memory, and a list of the steps that it takes."""

from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.pop import hand_over, record_log, record_targets, way_back
from ringmq.pop.hand_over import HandOver
from ringmq.pop.open_pops import OpenPop
from ringmq.pop.record_log import RecordLog
from ringmq.pop.record_notice import LATE_MS, NONE, KeptNotice, RecordNotice, read_notice, write_notice
from ringmq.pop.way_back import WayBack
from ringmq.pop.window_names import Key, Window
from ringmq.remoting.errors import RequestError
from ringmq.services.kit.clocks import monotonic_ms, wall_ms

DUE_MS = wall_ms() + 3_600_000
WINDOWS = {Key("G", "T", queue): Window(queue, queue + 1, 3, 40 + queue) for queue in range(record_log.COMMITS + 5)}


class Stage:
    """What a hand-over needs, and the steps that it takes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.steps = root, list[str]()
        self.messages_open, self.batches, self.refused, self.answers = 10, 2, 0, True
        self.sync: Callable[[], None] = lambda: None
        self.refusal: RequestError | None = None
        self.waiting = self.looks = 0
        self.endings: list[str] = []
        self.is_slow = self.is_full = False
        self.waiting_records = 0
        self.missing: Container[int] = ()
        self.offsets: tuple[int, ...] = ()
        self.committed: dict[int, int] = {}
        self.exports = True
        (root / "pop").mkdir()
        monkeypatch.setattr(record_log, "CheckPoints", lambda *_: self)
        monkeypatch.setattr(record_targets, "Topics", lambda plane: self)
        for module in (hand_over, way_back):
            monkeypatch.setattr(module, "RecordScan", lambda store, handled: self)
            monkeypatch.setattr(module, "OpenPops", lambda: self.found)
            monkeypatch.setattr(module, "lib", SimpleNamespace(
                RMQ_POP_INVISIBLE_MS_MAX=1000,
                rmq_pop_counts_of=lambda windows: SimpleNamespace(open=self.messages_open),
                rmq_pop_leave_returned=lambda windows, place, before: None,
                rmq_pop_set_committed=lambda windows, place, offset, start: self.committed.update({place: offset}),
                rmq_pop_open_messages=lambda windows, place: self.messages_open,
                rmq_pop_first_open=lambda windows, place: self.first_open.get(place, 100),
                rmq_pop_window_at=lambda windows, place: SimpleNamespace(committed=self.committed.get(place, 50)),
            ))  # fmt: skip
        monkeypatch.setattr(hand_over, "endings_of", lambda *_: list(self.endings))
        self.found = SimpleNamespace(add=lambda *record: None, all=lambda: iter(self.pops))
        self.pops: list[OpenPop] = []
        self.first_open: dict[int, int] = {}
        self.opened: set[int] = set()
        self.is_drained = False
        self.marks = marks = SimpleNamespace(
            append_offset=1000, dispatched_offset=1000, flushed_offset=1000, start_id=5
        )
        self.plane: Any
        self.plane = plane = SimpleNamespace(
            watermarks=marks, group_find=lambda group: None, queue=lambda slot: SimpleNamespace(max_offset=7)
        )

        def config() -> BrokerConfig:
            return BrokerConfig(pop_export_at_stop=self.exports, store_path_root_dir=str(root))

        me: Any = self
        records = RecordLog(
            plane=plane, port=me, windows=None, control=me, config=config, log=self.log, offsets=me,
        )  # fmt: skip
        self.notice = KeptNotice(root)
        back = WayBack(
            plane=plane, windows=None, names=me, records=records, notice=self.notice, config=config,
            store=self.store, log_line=lambda line: None, end_notice=self.end_notice,
        )  # fmt: skip
        self.hand_over = HandOver(
            plane=plane, windows=None, names=me, records=records, way_back=back, notice=self.notice, config=config,
            store=self.store, is_drained=lambda: self.is_drained, log_line=lambda line: None,
        )  # fmt: skip

    def end_notice(self) -> None:
        self.steps.append("end notice")
        self.notice.lower(NONE)

    def of_before(self, *endings: str) -> None:
        """An earlier stop has left records that wait in the timer."""
        self.endings = list(endings)
        write_notice(self.root, RecordNotice(500, DUE_MS))
        self.notice.now = read_notice(self.root)

    def run(self, within_ms: int = 5000, *, is_ready: bool = True) -> list[str]:
        self.hand_over.run(monotonic_ms() + within_ms, is_ready=is_ready)
        return self.steps

    def of_before_of_pops(self, *pops: OpenPop) -> None:
        """The same, for a stop that goes the way back."""
        self.of_before()
        self.pops, self.exports = list(pops), False

    # the store
    def store(self) -> Any:
        assert read_notice(self.root).until_ms, "nothing waits in the timer"

    def timed(
        self, read_ms: int, delay_max_ms: int, since: int, look: Callable[[], None] = lambda: None
    ) -> Iterator[Any]:
        assert since == 500 and wall_ms() - 2 * LATE_MS < read_ms <= wall_ms() - LATE_MS
        self.steps.append("compare")
        while self.is_slow:
            look()
        return iter([("ck", b"", 0)] * self.waiting_records)

    def timed_steps(self, read_ms: int, delay_max_ms: int, since: int) -> Iterator[Any]:
        self.steps.append("compare")
        while self.is_slow:
            yield None
        yield from [("ck", b"", 0)] * self.waiting_records

    def queue(self, topic: str, queue_id: int) -> tuple[int, int, int] | None:
        return None if queue_id in self.missing and topic.startswith("rmq_sys_REVIVE") else (2, 20 + queue_id, queue_id)

    def log(self) -> Any:
        def sync(begin: int, end: int) -> None:
            assert (begin, end) == (1000, 2000)
            self.steps.append("sync")
            self.sync()

        return SimpleNamespace(sync=sync)

    # the check points
    messages, records, log_end, due_ms = 10, 10, 2000, DUE_MS

    def fill(self) -> tuple[None, int]:
        self.batches -= 1
        return None, int(self.batches >= 0)

    def acknowledge(self, endings: list[Any]) -> tuple[str, int]:
        assert endings != self.endings or not self.waiting, "the check points are stored"
        ending = endings[0]
        return ending if isinstance(ending, str) else f"acknowledge {ending.acks.offsets}", 1

    def submit(self, requests: str | None, count: int) -> None:
        until_ms = read_notice(self.root).until_ms
        assert until_ms > wall_ms(), "a death behind this leaves records that the next stop looks for"
        self.steps.append(requests or "append")
        self.waiting += count
        self.looks = 0

    def take_answers(self) -> int:
        """Write answers at the second look."""
        self.looks += 1
        if self.answers and self.looks > 1:
            self.waiting = 0
        return self.waiting

    # windows
    def all(self) -> Any:
        return iter(WINDOWS.items())

    def named(self, window_id: int) -> Any:
        return ()

    def by_name(self, key: Key) -> Window | None:
        return WINDOWS.get(key)

    def begin_at(self, window: Window, offset: int) -> None:
        self.steps.append(f"begin {window.place} at {offset}")

    def native(self, window: Window) -> Any:
        return SimpleNamespace(next_offset=100, committed=100 if window.place == 2 else 50)

    def open(self, place: int, start_offset: int, pop_time_ms: int) -> set[int]:
        return {start_offset} & self.opened

    # the port and control
    @property
    def unstored(self) -> int:
        return 0 if self.answers else 1

    def has_room(self, count: int) -> bool:
        return not self.is_full

    def publish(self, rows: Sequence[tuple[int, int, int]]) -> None:
        assert all(offset == 100 for _, _, offset in rows) or not self.exports
        self.steps.append(f"offsets {len(rows)}")

    def handled(self, asked: Any, now_ms: int, then: Callable[[RequestError | None], None]) -> None:
        self.offsets = asked.offsets
        self.steps.append(f"handled {set(asked.offsets)}")
        then(self.refusal)

    def save_offsets(self, now_ms: int, then: Callable[[RequestError | None], None]) -> None:
        self.steps.append("save")
        then(self.refusal)

    def turn(self, now_ms: int) -> None:
        pass
