"""One run of tests as a file of JSON lines: outcomes of tests, and what ran at the time of a failure.

`recorder.py` writes the file while a run goes on, so a run that is killed leaves all but its last test.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

SHOWN_BESIDE = 12
COLLECT = "collect"
WORKER_ENDED = "its worker ended"


@dataclass(frozen=True)
class Phase:
    """Setup, call or teardown of a test, as pytest reports it. Times are seconds of the epoch.

    Phases that failed by one broken fixture have the same `cause`. For a file that cannot be collected, `when` is
    `COLLECT` and `test` is its path.
    """

    test: str
    when: str
    outcome: str  # passed, failed or skipped
    worker: str = "main"
    start_s: float = 0.0
    stop_s: float = 0.0
    output: str = ""
    cause: str = ""
    load: tuple[float, ...] = ()
    processes: tuple[str, ...] = ()

    def as_line(self) -> str:
        """The phase as a line of the file."""
        return json.dumps({"phase": asdict(self)}) + "\n"


@dataclass
class Attempt:
    """All phases of one test in one run."""

    test: str
    phases: list[Phase] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """failed, skipped or passed."""
        outcomes = {phase.outcome for phase in self.phases}
        return next((name for name in ("failed", "skipped") if name in outcomes), "passed")

    @property
    def worst(self) -> Phase:
        """The first phase that failed, else the last one."""
        return next((phase for phase in self.phases if phase.outcome == "failed"), self.phases[-1])

    @property
    def cause(self) -> str:
        """A name that is the same for tests which one broken fixture made fail."""
        return self.worst.cause or self.test

    @property
    def file(self) -> str:
        """The path of the test's file."""
        return self.test.partition("::")[0]

    @property
    def output(self) -> str:
        """All that the phases printed, logged and raised."""
        return "\n".join(phase.output for phase in self.phases if phase.output) or "(it printed nothing)"


@dataclass
class Run:
    """The attempts of one run by the names of their tests.

    `uncollected` are files that could not be collected. `not_run` are tests without a report. `lost_workers` ended
    while they ran no test. `is_whole` if pytest has collected tests and come to its end.
    """

    attempts: dict[str, Attempt] = field(default_factory=dict)
    uncollected: list[Phase] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    lost_workers: int = 0
    is_whole: bool = False

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of phases."""
        run, collected, kinds, deaths = cls(), dict[str, None](), set[str](), 0
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was killed
                continue
            kinds |= row.keys()
            if "phase" in row:
                row["phase"] |= {name: tuple(row["phase"][name]) for name in ("load", "processes")}
                run.add(Phase(**row["phase"]))
            collected |= dict.fromkeys(row.get("collected", ()))
            deaths += "died" in row
        run.not_run = [test for test in collected if test not in run.attempts]
        run.lost_workers = deaths - sum(phase.when == WORKER_ENDED for phase in run.phases())
        run.is_whole = {"collected", "end"} <= kinds
        return run

    def add(self, phase: Phase) -> None:
        """Add a phase to its test."""
        if phase.when == COLLECT and phase.outcome == "failed":
            self.uncollected.append(phase)
        else:
            self.attempts.setdefault(phase.test, Attempt(phase.test)).phases.append(phase)

    def with_outcome(self, outcome: str) -> list[Attempt]:
        """The attempts that ended so, in the order of the run."""
        return [attempt for attempt in self.attempts.values() if attempt.outcome == outcome]

    def beside(self, attempt: Attempt) -> list[str]:
        """Tests of other workers that ran while this one failed, the longest overlap first."""
        worst = attempt.worst
        overlaps: dict[str, float] = {}
        for other in self.phases():
            overlap_s = min(other.stop_s, worst.stop_s) - max(other.start_s, worst.start_s)
            if other.worker != worst.worker and overlap_s > 0:
                overlaps[other.test] = overlaps.get(other.test, 0.0) + overlap_s
        return sorted(overlaps, key=lambda test: -overlaps[test])[:SHOWN_BESIDE]

    def phases(self) -> Iterator[Phase]:
        """All phases, test by test."""
        return (phase for attempt in self.attempts.values() for phase in attempt.phases)
