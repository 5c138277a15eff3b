"""The order of a round of `ringmq bench`: which rows run on which broker, and the start of that broker."""

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from ringmq.loadtest.bench.rows import BenchRow, Context
from ringmq.loadtest.bench.warm_up import warm_up
from ringmq.loadtest.load.targets import RingmqTarget, StockTarget, Target
from ringmq.loadtest.load.warm_memory import touch_free_memory
from ringmq.loadtest.measuring.measurement import CEILING, RINGMQ, STOCK, Measurement, failed
from ringmq.loadtest.measuring.rounds import Turn
from ringmq.loadtest.stock import StockError

SYSTEMS = (STOCK, RINGMQ, CEILING) if find_spec("ringmq.loadtest.ceiling") else (STOCK, RINGMQ)


@dataclass(frozen=True)
class Plan:
    """The rows and systems of a run."""

    context: Context
    rows: Sequence[BenchRow]
    systems: Sequence[str] = SYSTEMS
    warm_memory: bool = False

    def turns(self, number: int) -> Generator[Turn, None, None]:
        """All rows of a system, then those of the next one."""
        for system in self.systems:
            rows = [row for row in self.rows if system in row.systems]
            if system == CEILING:
                for row in self.rows:
                    if row.ceiling is not None:
                        yield Turn(row, CEILING, partial(_ceiling, self.context, dict(row.ceiling)))
                continue
            yield from self._on_one_broker([row for row in rows if row.run is not None], system)
            for row in rows:
                if row.alone is not None:
                    self._touch()
                    yield Turn(row, system, partial(row.alone, self.context, system))

    def _on_one_broker(self, rows: Sequence[BenchRow], system: str) -> Generator[Turn, None, None]:
        """Rows of the same settings run one after another on one broker."""
        groups: list[list[BenchRow]] = []
        for row in rows:
            found = next((g for g in groups if (g[0].settings, g[0].slaves) == (row.settings, row.slaves)), None)
            if found is None:
                groups.append(found := [])
            found.append(row)
        for group in groups:
            self._touch()
            try:
                target = _start(self.context, system, dict(group[0].settings), group[0].slaves)
            except (StockError, RuntimeError, OSError) as error:
                note = f"{system} did not start: {str(error)[:300]}"
                yield from (Turn(row, system, partial(failed, note)) for row in group)
                continue
            with contextlib.closing(target):
                if system == STOCK:
                    warm_up(self.context, target, self.context.stock_warmup_s)
                for row in group:
                    assert row.run is not None
                    yield Turn(row, system, partial(row.run, self.context, target))

    def _touch(self) -> None:
        if self.warm_memory:
            touch_free_memory()


def _start(context: Context, system: str, settings: dict[str, str], slaves: int) -> Target:
    folder = context.folder / system
    if slaves:  # a row of replication, which a checkout alone has
        from ringmq.loadtest.replication.pairs import start_pair

        return start_pair(system, folder, settings, context.cpus)
    return (StockTarget if system == STOCK else RingmqTarget)(folder, settings, context.cpus)


def _ceiling(context: Context, options: dict[str, object]) -> Measurement:
    from ringmq.loadtest.ceiling.measure import measure_ceiling  # a checkout alone has it

    return measure_ceiling(context, options)
