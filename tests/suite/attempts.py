"""One run of tests as a file of JSON lines: what each test did, and what was beside it when it failed.

`recorder.py` writes the file while a run goes on, so a run that is killed leaves all but its last test.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

SHOWN_BESIDE = 12
NOT_RUN = "it did not run: its worker ended before it, or the run was broken off"


@dataclass(frozen=True)
class Phase:
    """Setup, call or teardown of a test, as pytest reports it. Times are seconds of the epoch.

    Phases that failed by one broken fixture have the same `cause`; other phases have the name of their test there.
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
    def output(self) -> str:
        """What the phases printed, logged and raised."""
        return "\n".join(phase.output for phase in self.phases if phase.output) or "(it printed nothing)"


@dataclass
class Run:
    """The attempts of one run by the names of their tests.

    `is_whole` if pytest has collected tests and come to its end.
    """

    attempts: dict[str, Attempt] = field(default_factory=dict)
    is_whole: bool = False

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of phases. A test that was collected and never reported counts as failed."""
        run, collected, found = cls(), [], set[str]()
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was killed
                continue
            if "phase" in row:
                row["phase"] |= {name: tuple(row["phase"][name]) for name in ("load", "processes")}
                run.add(Phase(**row["phase"]))
            collected += row.get("collected", ())
            found |= row.keys()
        for test in collected:
            if test not in run.attempts:
                run.add(Phase(test, "setup", "failed", output=NOT_RUN, cause=NOT_RUN))
        run.is_whole = {"collected", "end"} <= found
        return run

    def add(self, phase: Phase) -> None:
        """Add a phase to its test."""
        self.attempts.setdefault(phase.test, Attempt(phase.test)).phases.append(phase)

    def with_outcome(self, outcome: str) -> list[Attempt]:
        """The attempts that ended so, in the order of the run."""
        return [attempt for attempt in self.attempts.values() if attempt.outcome == outcome]

    def beside(self, attempt: Attempt) -> list[str]:
        """Tests of other workers that ran while this one failed, the longest overlap first."""
        worst = attempt.worst
        overlaps: dict[str, float] = {}
        for other in self._phases():
            overlap_s = min(other.stop_s, worst.stop_s) - max(other.start_s, worst.start_s)
            if other.worker != worst.worker and overlap_s > 0:
                overlaps[other.test] = overlaps.get(other.test, 0.0) + overlap_s
        return sorted(overlaps, key=lambda test: -overlaps[test])[:SHOWN_BESIDE]

    def _phases(self) -> Iterable[Phase]:
        return (phase for attempt in self.attempts.values() for phase in attempt.phases)
