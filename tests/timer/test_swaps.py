"""Two brokers with other settings change their roles: each message comes once, and none early."""

import itertools
from dataclasses import replace

import pytest
from msgspec import structs

from ringmq.timer.core import Progress, TimerSettings
from ringmq.timer.master_timers import MasterTimers
from ringmq.timer.progress import Saved, known_coarsest_ms, of_master
from ringmq.timer.rolled_copies import DoneBefore
from ringmq.timer.timer_checkpoint import Filing
from tests.timer.simulation import World
from tests.timer.test_changed_steps import run_for, send_some

PRECISIONS_MS = ((1000, 1000), (100, 100), (1000, 100), (100, 1000), (500, 200))
WINDOWS = ((40, 8), (8, 40), (40, 40))


class Broker(World):
    """As a slave it files the records of its master's log, up to the master's checkpoint."""

    def filing(self) -> Filing:
        settings, known_ms = self.settings, self.disk.checkpoint.known_coarsest_ms
        return Filing(settings.window_slots, settings.precision_ms, settings.coarsest_ms, known_ms)

    def begin_to_follow(self, master: World) -> None:
        """Its log is the master's from now on."""
        self.disk.log, self.sent, self.numbers = master.disk.log, master.sent, master.numbers
        units, self.ends, self.slots, self.to_walk, self.in_flight = self.disk.units, {}, {}, [], []
        self.filed = units[-1].queue_offset + 1 if units else 0

    def follow(self, timers: MasterTimers, now_ms: int) -> None:
        """File what the master has filed."""
        self.now_ms = now_ms
        self.done = DoneBefore((), 0, timers.known_offset, timers.open_ms)
        self.known_coarsest_ms = known_coarsest_ms(timers)
        for record in self.disk.timer_records()[self.filed : timers.known_offset]:
            self.enqueued(record, self.floored(timers.open_ms), self.floored(now_ms))
        self.filed = max(self.filed, timers.known_offset)

    def promote(self, timers: MasterTimers) -> bool:
        """Start as a master. Returns True if the files are rebuilt."""
        settings, own = self.settings, self.filing()
        saved = Saved(
            precision_ms=own.precision_ms, coarsest_ms=own.coarsest_ms, known_coarsest_ms=own.known_coarsest_ms,
            window_slots=own.window_slots,
        )  # fmt: skip
        saved = of_master(saved, timers, self.disk.end)
        if saved.needs_rebuild:
            self.disk.units, self.disk.flushed_units = [], 0
        self.settings = structs.replace(settings, coarsest_ms=max(settings.precision_ms, saved.coarsest_ms))
        self.disk.checkpoint = Progress(
            saved.open_ms, self.filed, timers.marks_from or 0, saved.known_offset, saved.known_ms,
            saved.known_coarsest_ms,
        )  # fmt: skip
        self.disk.coarsest_ms = self.settings.coarsest_ms
        self.core = self.started()
        return saved.needs_rebuild


def checkpoint(master: Broker, *, tells_filing: bool) -> MasterTimers:
    """What the master answers to request 60."""
    known = master.disk.checkpoint
    filing = master.filing() if tells_filing else replace(master.filing(), window_slots=0)
    return MasterTimers(
        known.known_ms or known.open_ms, known.known_offset, known.marks_from, known.marks_from, filing=filing
    )  # fmt: skip


def live(master: Broker, slave: Broker, span_ms: int, *, tells_filing: bool) -> MasterTimers:
    """The slave is up to date at times."""
    for _ in range(4):
        send_some(master)
        run_for(master, master.random.randrange(span_ms))
        if master.random.random() < 0.7:
            master.flush()
        timers = checkpoint(master, tells_filing=tells_filing)
        if master.random.random() < 0.7:
            slave.follow(timers, master.now_ms)
    return timers


@pytest.mark.parametrize("tells_filing", [True, False], ids=["one window", "several"])
@pytest.mark.parametrize("precisions_ms", PRECISIONS_MS)
def test_each_message_comes_once_over_two_swaps(precisions_ms: tuple[int, int], tells_filing: bool) -> None:
    for windows, seed in itertools.product(WINDOWS, range(2)):
        settings = [TimerSettings(*pair) for pair in zip(precisions_ms, windows, strict=True)]
        master, slave = Broker(seed, settings[0]), Broker(seed + 100, settings[1])
        place, rebuilt = f"{precisions_ms} ms, windows {windows}, seed {seed}", []
        for _ in range(2):
            slave.begin_to_follow(master)
            timers = live(master, slave, 20 * max(precisions_ms), tells_filing=tells_filing)
            master.kill()
            slave.follow(timers, master.now_ms)
            master, slave = slave, master
            rebuilt.append(master.promote(timers))
            master.early += slave.early
        send_some(master)
        master.finish(max(record.exact_ms for record in master.sent.values()))
        assert sorted(master.deliveries()) == sorted(master.sent), place
        assert not master.early, place
        is_equal = tells_filing and precisions_ms[0] == precisions_ms[1] and windows[0] == windows[1]
        assert rebuilt == [not is_equal] * 2, place
