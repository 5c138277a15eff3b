"""What a run and its second attempts come to (`verdict.py`, `attempts.py`)."""

from pathlib import Path

import pytest

from tests.suite.attempts import NOT_RUN, Phase, Run
from tests.suite.verdict import AGAIN_MAX, END_LINES, Verdict, end_of_log, judge, last_error_line, shortened


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
    verdict = judge([run_of(failed("t"), passed("u"))], run_of(*again))
    (doubt,) = verdict.failed + verdict.wavering
    assert doubt.line.startswith(f"{kind}: t (")
    assert verdict.holds is holds
    assert verdict.passed == 1 + holds


@pytest.mark.parametrize(("count", "holds"), [(5, True), (6, False)])
def test_five_may_waver(count: int, holds: bool) -> None:
    names = [f"t{number}" for number in range(count)]
    verdict = judge([run_of(*map(failed, names))], run_of(*map(passed, names)))
    assert (verdict.causes, verdict.holds) == (count, holds)


def test_tests_of_one_broken_fixture_count_once() -> None:
    names = [f"t{number}" for number in range(9)]
    verdict = judge([run_of(*(failed(name, "gw0 17 OSError") for name in names))], run_of(*map(passed, names)))
    assert (len(verdict.wavering), verdict.causes, verdict.holds) == (9, 1, True)


def test_a_run_that_ends_early_does_not_hold() -> None:
    verdict = judge([run_of(passed("t"))], Run())
    assert verdict.holds
    verdict.broken = ["pytest ended with status 3"]
    assert not verdict.holds
    assert "broken: pytest ended with status 3" in end_of_log(verdict, 1, "file")


def test_what_ran_beside_a_failure_is_named_by_its_overlap() -> None:
    long, short, before = passed("long", 0.0, 30.0), passed("short", 11.9, 30.0), passed("before", 0.0, 9.0)
    own = Phase("own", "call", "passed", "gw0", 0.0, 30.0)
    (doubt,) = judge([run_of(before, short, own, long, failed("t"))], Run()).failed
    assert doubt.beside == ("long", "short")


def test_the_last_lines_name_and_repeat_every_failure() -> None:
    names = [f"tests/test_{number:02}.py::test_it" for number in range(20)]
    runs = [run_of(*(failed(name, output="\n".join(["x"] * 500 + ["E   AssertionError: a cause"])) for name in names))]
    lines = end_of_log(judge(runs, run_of(*map(passed, names[:2]))), 7, "build/tests/verdict.txt")
    assert len(lines) <= END_LINES + 10
    assert all(f"failed once: {name} (call): AssertionError: a cause" in lines for name in names[2:])
    assert all(f"== failed once: {name} (call): AssertionError: a cause" in lines for name in names[2:])
    assert lines[-2:] == [
        "does not hold: 18 failed, 2 wavering (at most 5), 0 not measured, seed 7",
        "suite: 2 passed, 18 failed, 0 skipped",
    ]


def test_hundreds_of_failures_are_named_as_far_as_there_is_room() -> None:
    lines = end_of_log(judge([run_of(*(failed(f"t{number}") for number in range(700)))], Run()), 1, "file")
    assert len(lines) <= END_LINES + 10
    assert "... and 640 more" in lines
    assert AGAIN_MAX < 700


def test_tests_that_were_not_measured_are_named() -> None:
    verdict = Verdict(
        passed=1,
        skipped=run_of(Phase("t", "setup", "skipped", output="timed: needs 1 idle CPUs")).with_outcome("skipped"),
    )
    lines = end_of_log(verdict, 1, "file")
    assert "not measured on a busy machine: t" in lines
    assert "1 not measured" in lines[-2]


def test_the_line_of_an_error() -> None:
    assert last_error_line("def f():\n>   g()\nE   ValueError: no\nE   more\n\nfile:1: ValueError") == "ValueError: no"
    assert last_error_line("worker 'gw0' crashed while running t\n") == "worker 'gw0' crashed while running t"
    assert last_error_line("") == "no output"


def test_the_middle_of_long_outputs_is_left_out() -> None:
    assert shortened(list("abcdefgh"), 8) == list("abcdefgh")
    assert shortened(list("abcdefghi"), 5) == ["a", "b", "... 5 lines ...", "h", "i"]


def test_a_record_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "record"
    phases = [failed("t"), passed("u")]
    path.write_text('{"collected": ["t", "u", "v"]}\n' + "".join(phase.as_line() for phase in phases) + '{"end": 1}\n')
    run = Run.read(path)
    assert run.is_whole
    assert [phase for attempt in run.attempts.values() for phase in attempt.phases][:2] == phases
    assert run.attempts["v"].outcome == "failed"
    assert run.attempts["v"].output == NOT_RUN


@pytest.mark.parametrize("text", ["", '{"collected": []}\n', '{"end": 0}\n', '{"collected": ["t"]}\n{"pha'])
def test_a_record_without_its_ends_is_not_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / "record").write_text(text)
    assert not Run.read(tmp_path / "record").is_whole
    assert not Run.read(tmp_path / "none").is_whole
