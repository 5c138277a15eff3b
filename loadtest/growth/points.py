"""The points of scenarios as rows of the frame: each is measured in its turn, by the scenario that has it."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ringmq.loadtest.growth.bench import LAST, Bench, Point, Scenario
from ringmq.loadtest.load.warm_memory import touch_free_memory
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, Measurement
from ringmq.loadtest.measuring.rounds import Row, Session, Turn


def rows_of(scenario: Scenario) -> list[Row]:
    """Return a row for each point."""
    last = scenario.goals.get(LAST, ())
    return [
        Row(
            f"{scenario.name} {at:g}", scenario.title, RATE, "msg/s",
            (*scenario.goals.get(at, ()), *(last if at == scenario.values[-1] else ())),
            place={"scenario": scenario.name, "axis": scenario.axis, "at": at},
        )
        for at in scenario.values
    ]  # fmt: skip


def with_saved(points: Iterable[Point]) -> Iterator[Point]:
    """Yield the points with `kept`, the rate as a share of the first point's."""
    first = 0.0
    for point in points:
        rate = point.measurement.values.get(RATE, 0.0)
        first = first or rate
        values = {**point.measurement.values, **({"kept": rate / first} if first else {})}
        yield Point(point.at, replace(point.measurement, values=values))


@dataclass
class Points:
    """The points of a scenario, in order. Behind one that fails, there is no further one."""

    left: Iterator[Point]
    last: object
    waiting: Point | None = None

    def at(self, place: object) -> Measurement | None:
        """Measure the point at this place. None: the scenario has none there."""
        point = self.waiting or next(self.left, None)
        if place == self.last:
            next(self.left, None)  # the scenario stops its last broker
        self.waiting = point if point and point.at != place else None
        return point.measurement if point and not self.waiting else None


def turns(bench: Bench, scenarios: Sequence[Scenario], number: int) -> Generator[Turn, None, None]:
    """All scenarios."""
    for scenario in scenarios:
        if number and scenario.once:
            continue
        if bench.warm_memory:
            touch_free_memory()
        points = Points(with_saved(scenario.run(bench, scenario.values)), scenario.values[-1])
        for row in rows_of(scenario):
            yield Turn(row, RINGMQ, partial(points.at, row.place["at"]))


def session_of(bench: Bench, scenarios: Sequence[Scenario], rounds: int) -> Session:
    """Return the session of these scenarios."""
    rows = [row for scenario in scenarios for row in rows_of(scenario)]
    return Session(rows, partial(turns, bench, scenarios), rounds, header=bench.circumstances)
