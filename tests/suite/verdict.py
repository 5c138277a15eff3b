"""The verdict over a run of all tests and a second run of those that failed. Nothing here reads or writes.

A test that fails twice has a cause. One that holds when it runs alone *wavers*: it depends on what runs beside it, on
chance or on the machine. A run holds if nothing fails twice and few tests waver.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.suite.attempts import Attempt, Run

WAVERING_MAX = 5
AGAIN_MAX = 40
"""More failures are not run again: a run with so many cannot hold any more."""
END_LINES = 180
"""What the end of a log shows of all failures together, so that its last 200 lines tell all."""
NAMED_MAX = 60
LEAST_LINES = 7


@dataclass(frozen=True)
class Doubt:
    """A test that failed, and what it did when it ran again (None: it was not run again)."""

    first: Attempt
    again: Attempt | None
    beside: tuple[str, ...] = ()

    @property
    def wavers(self) -> bool:
        """True if the second attempt passed."""
        return self.again is not None and self.again.outcome == "passed"

    @property
    def line(self) -> str:
        """The failure in one line: verdict, test, phase, message."""
        failed = self.first if self.again is None or self.again.outcome != "failed" else self.again
        message = last_error_line(failed.worst.output)
        kind = "wavering" if self.wavers else "failed once" if self.again is None else "failed twice"
        if self.again is not None and self.again.outcome == "skipped":
            kind = "failed, then skipped"
        return f"{kind}: {self.first.test} ({failed.worst.when}): {message}"


@dataclass
class Verdict:
    """What a run comes to."""

    passed: int = 0
    skipped: list[Attempt] = field(default_factory=list)
    failed: list[Doubt] = field(default_factory=list)
    wavering: list[Doubt] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # runs of pytest that did not come to their end

    @property
    def causes(self) -> int:
        """Wavering tests; those that one broken fixture made fail count once."""
        return len({doubt.first.worst.cause or doubt.first.test for doubt in self.wavering})

    @property
    def holds(self) -> bool:
        """True if nothing failed twice, few tests waver and every run came to its end."""
        return not self.failed and not self.broken and self.causes <= WAVERING_MAX


def judge(runs: Iterable[Run], again: Run) -> Verdict:
    """Compare the runs with the second attempts of what failed in them."""
    verdict = Verdict()
    for run in runs:
        verdict.passed += len(run.with_outcome("passed"))
        verdict.skipped += run.with_outcome("skipped")
        for first in run.with_outcome("failed"):
            doubt = Doubt(first, again.attempts.get(first.test), tuple(run.beside(first)))
            (verdict.wavering if doubt.wavers else verdict.failed).append(doubt)
    verdict.passed += len(verdict.wavering)
    return verdict


def last_error_line(output: str) -> str:
    """The line of a traceback that says what is wrong: the first one marked by pytest, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = next((line[1:].strip() for line in lines if line.startswith("E ")), None)
    return (marked or (lines[-1] if lines else "no output"))[:160]


def full_text(doubt: Doubt, seed: int) -> list[str]:
    """All that is known of a failure, as lines."""
    worst = doubt.first.worst
    load = " ".join(f"{value:.1f}" for value in worst.load) or "unknown"
    lines = [
        f"== {doubt.line}",
        f"seed {seed}, worker {worst.worker}, {worst.stop_s - worst.start_s:.1f} s, load average {load}",
        *(f"beside it: {test}" for test in doubt.beside),
        *(f"process: {process}" for process in worst.processes),
        "-- first attempt",
        *doubt.first.output.splitlines(),
    ]
    if doubt.again is not None:
        lines += [f"-- second attempt, alone: {doubt.again.outcome}", *doubt.again.output.splitlines()]
    return lines


def end_of_log(verdict: Verdict, seed: int, file: str) -> list[str]:
    """The last lines of a run: each failure in one line, shortened outputs, then the verdict."""
    doubts = verdict.failed + verdict.wavering
    named = [doubt.line for doubt in doubts[:NAMED_MAX]]
    if len(doubts) > NAMED_MAX:
        named.append(f"... and {len(doubts) - NAMED_MAX} more")
    room = max(LEAST_LINES, (END_LINES - len(named) - 10) // max(1, len(doubts)))
    shown = max(0, (END_LINES - len(named) - 10) // room)
    lines = []
    for doubt in doubts[:shown]:
        lines += shortened(full_text(doubt, seed), room)
    if doubts:
        lines += ["== failures", *named, f"whole outputs: {file}"]
    untimed = [attempt for attempt in verdict.skipped if "timed: needs" in attempt.output]
    lines += [f"not measured on a busy machine: {attempt.test}" for attempt in untimed[:20]]
    lines += [f"broken: {text}" for text in verdict.broken]
    lines.append(
        f"{'holds' if verdict.holds else 'does not hold'}: {len(verdict.failed)} failed, "
        f"{verdict.causes} wavering (at most {WAVERING_MAX}), {len(untimed)} not measured, seed {seed}"
    )
    # A plain last line that other programs can read.
    lines.append(f"suite: {verdict.passed} passed, {len(verdict.failed)} failed, {len(verdict.skipped)} skipped")
    return lines


def shortened(lines: list[str], room: int) -> list[str]:
    """The lines, without those in the middle that do not fit."""
    if len(lines) <= room:
        return lines
    head = room // 2
    tail = room - head - 1
    return [*lines[:head], f"... {len(lines) - head - tail} lines ...", *lines[-tail:]]
