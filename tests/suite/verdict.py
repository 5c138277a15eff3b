"""The verdict over the runs of a suite and a second run of the tests that failed. Nothing here reads or writes.

A test that fails twice has a cause. A test that passes when it runs again alone *wavers*: it depends on other tests, on
chance or on the machine. A suite holds if nothing fails twice, few tests waver and every test has run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.suite.attempts import Attempt, Phase, Run

WAVERING_MAX = 5
AGAIN_MAX = 40
"""Causes that are tried again. A suite with more failures cannot hold any more."""
END_LINES = 180
"""Lines for all failures together at the end of a log, so that its last 200 lines tell all."""
NAMED_MAX = 60
LEAST_LINES = 7


@dataclass(frozen=True)
class Failure:
    """A test that failed, and its second attempt (None: the test was not run again)."""

    first: Attempt
    again: Attempt | None
    beside: tuple[str, ...] = ()

    @property
    def wavers(self) -> bool:
        """True if the second attempt passed."""
        return self.again is not None and self.again.outcome == "passed"

    @property
    def line(self) -> str:
        """The failure in one line: kind, test, phase, message."""
        kind = {None: "failed once", "failed": "failed twice", "skipped": "failed, then skipped", "passed": "wavering"}
        shown = self.again if self.again is not None and self.again.outcome == "failed" else self.first
        outcome = self.again.outcome if self.again is not None else None
        return f"{kind[outcome]}: {self.first.test} ({shown.worst.when}): {error_line(shown.worst.output)}"


@dataclass
class Verdict:
    """All that the runs of a suite come to."""

    passed: int = 0
    skipped: list[Attempt] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    wavering: list[Failure] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    uncollected: list[Phase] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # runs of pytest that did not come to their end

    @property
    def causes(self) -> int:
        """Wavering tests; those that one broken fixture made fail count once."""
        return len({failure.first.cause for failure in self.wavering})

    @property
    def holds(self) -> bool:
        """True if nothing failed twice, few tests waver, and all tests have run."""
        is_whole = not (self.broken or self.uncollected or self.not_run)
        return is_whole and not self.failed and self.causes <= WAVERING_MAX


def to_run_again(runs: Iterable[Run]) -> list[str]:
    """Names of the tests for the second run.

    A teardown of a module, and a process that a file has left, are charged to the last test of the file. That test
    alone would pass, so all tests of the file run again.
    """
    names: dict[str, None] = {}
    causes: set[str] = set()
    for run in runs:
        for failed in run.with_outcome("failed"):
            causes.add(failed.cause)
            if len(causes) > AGAIN_MAX:
                return list(names)
            names[failed.test] = None
            if failed.worst.when == "teardown":
                names |= {test: None for test, other in run.attempts.items() if other.file == failed.file}
        names |= dict.fromkeys(run.not_run[:AGAIN_MAX])
    return list(names)


def compare(runs: Iterable[Run], again: Run) -> Verdict:
    """Compare the runs with the second attempts of the tests that failed or did not run in them."""
    verdict = Verdict()
    charged: set[str] = set()
    for run in runs:
        verdict.passed += len(run.with_outcome("passed"))
        verdict.skipped += run.with_outcome("skipped")
        verdict.uncollected += run.uncollected
        charged |= {attempt.test for attempt in run.with_outcome("failed")}
        for first in run.with_outcome("failed"):
            failure = Failure(first, again.attempts.get(first.test), tuple(run.beside(first)))
            (verdict.wavering if failure.wavers else verdict.failed).append(failure)
        for test in run.not_run:
            missing = Attempt(test, [Phase(test, "setup", "failed", output="it did not run the first time")])
            failure = Failure(missing, again.attempts.get(test))
            charged.add(test)
            if failure.again is None:
                verdict.not_run.append(test)
            else:
                (verdict.wavering if failure.wavers else verdict.failed).append(failure)
    # Tests that came along with the last one of their file, and failed only now.
    for attempt in again.with_outcome("failed"):
        if attempt.test not in charged:
            verdict.failed.append(Failure(attempt, attempt))
            verdict.passed -= 1
    verdict.uncollected += again.uncollected
    verdict.passed += len(verdict.wavering)
    return verdict


def error_line(output: str) -> str:
    """The line of an output that says what is wrong.

    pytest marks it by an E. Without a mark it is the last line of a traceback, else the first line of a message.
    """
    lines = [line.strip() for line in output.partition("\n-- ")[0].splitlines()]
    lines = [line for line in lines if line and not line.startswith("[gw")]
    marked = next((line[1:].strip() for line in lines if line.startswith("E ")), None)
    is_traceback = any(line.startswith("Traceback") for line in lines)
    return (marked or (lines[-1 if is_traceback else 0] if lines else "no output"))[:160]


def full_text(failure: Failure, seed: int) -> list[str]:
    """All that is known of a failure, as lines."""
    return [
        f"== {failure.line}",
        *circumstances(failure, seed),
        *(f"beside it: {test}" for test in failure.beside),
        *(f"process: {process}" for process in failure.first.worst.processes),
        "-- first attempt",
        *failure.first.output.splitlines(),
        *_second(failure),
    ]


def short_text(failure: Failure, seed: int, room: int) -> list[str]:
    """A failure in `room` lines: each attempt around the line that says what is wrong."""
    beside = [f"beside it: {', '.join(failure.beside[:3])}"] if failure.beside else []
    head = [f"== {failure.line}", *circumstances(failure, seed), *beside]
    left = max(2, room - len(head))
    first, second = failure.first.output.splitlines(), _second(failure)
    shown = min(len(second), left // 3)
    return [*head, *around_error(first, left - shown), *around_error(second, shown)][:room]


def circumstances(failure: Failure, seed: int) -> list[str]:
    """Seed, worker, duration and load of a failure, in one line."""
    worst = failure.first.worst
    load = " ".join(f"{value:.1f}" for value in worst.load) or "unknown"
    return [f"seed {seed}, worker {worst.worker}, {worst.stop_s - worst.start_s:.1f} s, load average {load}"]


def _second(failure: Failure) -> list[str]:
    if failure.again is None or failure.again is failure.first:
        return []
    return [f"-- second attempt, alone: {failure.again.outcome}", *failure.again.output.splitlines()]


def around_error(lines: Sequence[str], room: int) -> list[str]:
    """At most `room` lines, those around the first line that pytest marks as the error, else the first ones."""
    if len(lines) <= room or room < 1:
        return list(lines[:room])
    error = next((number for number, line in enumerate(lines) if line.startswith("E ")), 0)
    start = max(0, min(error - room * 2 // 3, len(lines) - room))
    return list(lines[start : start + room])


def end_of_log(verdict: Verdict, seed: int, file: str) -> list[str]:
    """The last lines of a run: shortened outputs, each failure in one line, then the verdict."""
    failures = verdict.failed + verdict.wavering
    named = [failure.line for failure in failures[:NAMED_MAX]]
    if len(failures) > NAMED_MAX:
        named.append(f"... and {len(failures) - NAMED_MAX} more")
    left = END_LINES - len(named) - 10
    room = max(LEAST_LINES, left // max(1, len(failures)))
    lines = []
    for failure in failures[: max(0, left // room)]:
        lines += short_text(failure, seed, room)
    for phase in verdict.uncollected[:5]:
        lines += [f"== cannot be collected: {phase.test}", *around_error(phase.output.splitlines(), 2 * LEAST_LINES)]
    if failures:
        lines += ["== failures", *named, f"whole outputs: {file}"]
    lines += [f"cannot be collected: {phase.test}: {error_line(phase.output)}" for phase in verdict.uncollected[:20]]
    if verdict.not_run:
        lines.append(f"not run: {len(verdict.not_run)} tests, the first is {verdict.not_run[0]}")
    unmeasured = not_measured(verdict)
    lines += [f"not measured on a busy machine: {test}" for test in unmeasured[:NAMED_MAX]]
    lines += [f"broken: {text}" for text in verdict.broken]
    lines.append(
        f"{'holds' if verdict.holds else 'does not hold'}: {len(verdict.failed)} failed, "
        f"{verdict.causes} wavering (at most {WAVERING_MAX}), {len(unmeasured)} not measured, seed {seed}"
    )
    # A plain last line that other programs can read.
    lines.append(f"suite: {verdict.passed} passed, {len(verdict.failed)} failed, {len(verdict.skipped)} skipped")
    return lines


def not_measured(verdict: Verdict) -> list[str]:
    """Tests that were skipped because the machine was busy."""
    return [attempt.test for attempt in verdict.skipped if "timed: needs" in attempt.output]
