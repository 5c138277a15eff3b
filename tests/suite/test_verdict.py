"""The verdict over a run and its second attempts (`verdict.py`, `attempts.py`)."""

from pathlib import Path

import pytest

from tests.suite.attempts import COLLECT, WORKER_ENDED, Phase, Run
from tests.suite.verdict import (
    AGAIN_MAX,
    END_LINES,
    Verdict,
    around_error,
    compare,
    end_of_log,
    error_line,
    to_run_again,
)


def run_of(*phases: Phase) -> Run:
    run = Run(is_whole=True)
    for phase in phases:
        run.add(phase)
    return run


def failed(test: str, cause: str = "", output: str = "E   AssertionError: a cause") -> Phase:
    return Phase(test, "call", "failed", "gw0", 10.0, 12.0, output, cause, (3.0, 2.0, 1.0), ("90% 17 make",))


def passed(test: str, start_s: float = 0.0, stop_s: float = 1.0) -> Phase:
    return Phase(test, "call", "passed", "gw1", start_s, stop_s, "-- Captured stdout\nall is well")


@pytest.mark.parametrize(
    ("again", "kind", "holds"),
    [
        ((), "failed once", False),
        ((failed("t"),), "failed twice", False),
        ((passed("t"),), "wavering", True),
        ((Phase("t", "setup", "skipped"),), "failed, then skipped", False),
        ((passed("t"), Phase("t", "teardown", "failed", output="E   it stays")), "failed twice", False),
    ],
)
def test_each_second_attempt(again: tuple[Phase, ...], kind: str, holds: bool) -> None:
    verdict = compare([run_of(failed("t"), passed("u"))], run_of(*again))
    (failure,) = verdict.failed + verdict.wavering
    assert failure.line.startswith(f"{kind}: t (")
    assert verdict.holds is holds
    assert verdict.passed == 1 + holds


@pytest.mark.parametrize(("count", "holds"), [(5, True), (6, False)])
def test_five_may_waver(count: int, holds: bool) -> None:
    names = [f"t{number}" for number in range(count)]
    verdict = compare([run_of(*map(failed, names))], run_of(*map(passed, names)))
    assert (verdict.causes, verdict.holds) == (count, holds)


def test_tests_of_one_broken_fixture_count_once() -> None:
    names = [f"t{number}" for number in range(9)]
    verdict = compare([run_of(*(failed(name, "gw0 17 OSError") for name in names))], run_of(*map(passed, names)))
    assert (len(verdict.wavering), verdict.causes, verdict.holds) == (9, 1, True)


def test_a_run_that_ends_early_does_not_hold() -> None:
    verdict = compare([run_of(passed("t"))], Run())
    assert verdict.holds
    verdict.broken = ["pytest ended with status 3"]
    assert not verdict.holds
    assert "broken: pytest ended with status 3" in end_of_log(verdict, 1, "file")


def test_what_ran_beside_a_failure_is_named_by_its_overlap() -> None:
    long, short, before = passed("long", 0.0, 30.0), passed("short", 11.9, 30.0), passed("before", 0.0, 9.0)
    own = Phase("own", "call", "passed", "gw0", 0.0, 30.0)
    (failure,) = compare([run_of(before, short, own, long, failed("t"))], Run()).failed
    assert failure.beside == ("long", "short")


def test_the_last_lines_name_and_repeat_every_failure() -> None:
    names = [f"tests/test_{number:02}.py::test_it" for number in range(20)]
    output = "\n".join(["x"] * 500 + ["E   AssertionError: a cause"] + ["y"] * 500)
    runs = [run_of(*(failed(name, output=output) for name in names))]
    lines = end_of_log(compare(runs, run_of(*map(passed, names[:2]))), 7, "build/tests/verdict.txt")
    assert len(lines) <= END_LINES + 10
    assert all(f"failed once: {name} (call): AssertionError: a cause" in lines for name in names[2:])
    assert all(f"== failed once: {name} (call): AssertionError: a cause" in lines for name in names[2:])
    assert lines.count("E   AssertionError: a cause") == 20, "each output is shown around its error"
    assert lines[-2:] == [
        "does not hold: 18 failed, 2 wavering (at most 5), 0 not measured, seed 7",
        "suite: 2 passed, 18 failed, 0 skipped",
    ]


def test_hundreds_of_failures_are_named_as_far_as_there_is_room() -> None:
    lines = end_of_log(compare([run_of(*(failed(f"t{number}") for number in range(700)))], Run()), 1, "file")
    assert len(lines) <= END_LINES + 10
    assert "... and 640 more" in lines
    assert AGAIN_MAX < 700


def test_tests_that_were_not_measured_are_named() -> None:
    skipped = run_of(Phase("t", "setup", "skipped", output="timed: needs 1 idle CPUs")).with_outcome("skipped")
    lines = end_of_log(Verdict(passed=1, skipped=skipped), 1, "file")
    assert "not measured on a busy machine: t" in lines
    assert "1 not measured" in lines[-2]


def test_a_teardown_runs_again_with_all_tests_of_its_file() -> None:
    """The last test of a file is charged with what the file leaves. It alone would pass."""
    last = Phase("a.py::last", "teardown", "failed", output="2 processes still run")
    run = run_of(passed("a.py::first"), passed("b.py::other"), passed("a.py::last"), last, failed("b.py::one"))
    assert to_run_again([run]) == ["a.py::last", "a.py::first", "b.py::one"]
    again = run_of(passed("a.py::first"), passed("a.py::last"), last, passed("b.py::one"))
    verdict = compare([run], again)
    assert [failure.first.test for failure in verdict.failed] == ["a.py::last"]
    assert (verdict.passed, verdict.causes) == (3, 1)


def test_a_test_that_fails_only_in_the_second_run_counts() -> None:
    last = Phase("a.py::last", "teardown", "failed", output="2 processes still run")
    verdict = compare([run_of(passed("a.py::first"), last)], run_of(failed("a.py::first"), passed("a.py::last")))
    assert [failure.first.test for failure in verdict.failed] == ["a.py::first"]
    assert (verdict.passed, verdict.holds) == (1, False)


def test_causes_are_run_again_up_to_a_limit() -> None:
    fixture = [failed(f"f{number}", "one fixture") for number in range(60)]
    assert len(to_run_again([run_of(*fixture)])) == 60
    assert len(to_run_again([run_of(*(failed(f"t{number}") for number in range(700)))])) == AGAIN_MAX


@pytest.mark.parametrize("again", [(), (passed("t"),)])
def test_a_test_that_did_not_run_runs_again(again: tuple[Phase, ...]) -> None:
    run = run_of(passed("u"))
    run.not_run = ["t"]
    assert to_run_again([run]) == ["t"]
    verdict = compare([run], run_of(*again))
    assert verdict.holds == bool(again)
    assert ("not run: 1 tests, the first is t" in end_of_log(verdict, 1, "file")) == (not again)


def test_a_file_that_cannot_be_collected_is_named_with_its_error() -> None:
    run = run_of(passed("t"), failed("u"), Phase("b.py", COLLECT, "failed", output="E   ImportError: no module"))
    verdict = compare([run], run_of(passed("u")))
    assert not verdict.holds
    assert "cannot be collected: b.py: ImportError: no module" in end_of_log(verdict, 1, "file")


def test_the_line_of_an_error() -> None:
    assert error_line("def f():\n>   g()\nE   ValueError: no\nE   more\n\nfile:1: ValueError") == "ValueError: no"
    assert error_line("[gw0] linux\n2 processes still run:\n17 sleep\n-- log\nE  x") == "2 processes still run:"
    assert error_line("Traceback (most recent call last):\n  file\nValueError: no\n") == "ValueError: no"
    assert error_line("") == "no output"


@pytest.mark.parametrize(("error", "shown"), [(None, "abcd"), (0, "Ebcd"), (4, "cdEf"), (9, "ghiE")])
def test_lines_around_an_error_are_shown(error: int | None, shown: str) -> None:
    lines = ["E  " if number == error else name for number, name in enumerate("abcdefghij")]
    assert "".join(line.strip() for line in around_error(lines, 4)) == shown
    assert around_error(lines, 10) == lines
    assert around_error(lines, 0) == []


def test_a_record_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "record"
    phases = [failed("t"), passed("u"), Phase("d", WORKER_ENDED, "failed")]
    deaths = '{"died": "gw0"}\n' * 2
    rows = "".join(phase.as_line() for phase in phases)
    path.write_text('{"collected": ["t", "u", "v", "d"]}\n' + rows + deaths + '{"end": 1}\n')
    run = Run.read(path)
    assert run.is_whole
    assert [*run.phases()] == phases
    assert run.not_run == ["v"]
    assert run.lost_workers == 1, "one death belongs to a test"


@pytest.mark.parametrize("text", ["", '{"collected": []}\n', '{"end": 0}\n', '{"collected": ["t"]}\n{"pha'])
def test_a_record_without_its_ends_is_not_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / "record").write_text(text)
    assert not Run.read(tmp_path / "record").is_whole
    assert not Run.read(tmp_path / "none").is_whole
