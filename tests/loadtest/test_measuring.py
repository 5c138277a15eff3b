"""The frame of the benches: goals as text, the order of sides, runs that fail, results of an interrupted run."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringmq.loadtest.measuring.command import Command, Options
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, Goal, Measurement, goals
from ringmq.loadtest.measuring.rounds import Row, Session, Turn, named, rotated, run_rounds
from ringmq.loadtest.measuring.tables import markdown_table, sides_table

ROWS = [Row(name, f"row {name}", RATE, "msg/s", goals(f"{RATE} >=3"), shown=("p99",)) for name in ("one", "two")]


def test_goals_are_read_as_they_are_printed() -> None:
    found = goals("messages_per_s >=1.5x stock, p99_9 <=0.1x peer, total_mib <=250, kept >=0.75x ceiling")
    assert found == (
        Goal(RATE, "stock", at_least=1.5), Goal("p99_9", "peer", at_most=0.1),
        Goal("total_mib", "absolute", at_most=250), Goal("kept", "ceiling", at_least=0.75),
    )  # fmt: skip
    assert goals(", ".join(f"{goal.metric} {goal.text()}" for goal in found)) == found


@pytest.mark.parametrize("text", ["", "p99", "p99 =1", "p99 >=1x kafka", "p99 >=1;max <=2", "p99 >=-1"])
def test_another_text_is_no_goal(text: str) -> None:
    with pytest.raises(ValueError, match="is no goal"):
        goals(text)


def test_each_round_begins_with_another_side() -> None:
    assert [rotated("ab", number) for number in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]
    assert [rotated("abc", number)[0] for number in range(4)] == ["a", "b", "c", "a"]


def test_rows_are_named_in_the_order_of_the_table() -> None:
    assert named(ROWS, ["two", "one"]) == named(ROWS, []) == ROWS
    with pytest.raises(ValueError, match="three unknown; there are one, two"):
        named(ROWS, ["three"])


def measured(number: int) -> Measurement:
    if number == 1:
        raise LookupError("the second round has no message")
    return Measurement({RATE: 2.0 * number, "p99": 7.0})


def turns(number: int) -> Generator[Turn, None, None]:
    yield Turn(ROWS[0], RINGMQ, lambda: measured(number))
    yield Turn(ROWS[1], RINGMQ, lambda: None)


def test_a_run_that_fails_is_recorded_and_no_measurement_is_none() -> None:
    said: list[str] = []
    session = Session(ROWS, turns, 3, settle_s=0)
    assert run_rounds(session, said.append) == session.runs
    assert [run.ok for run in session.runs["one"][RINGMQ]] == [True, False, True]
    assert session.runs["one"][RINGMQ][1].note == "LookupError: the second round has no message"
    assert "two" not in session.runs
    assert said[0] == "round 1 of 3" and "4 messages_per_s, 7 p99" in said[-1]


def test_a_stopped_round_closes_what_it_has_opened() -> None:
    closed: list[int] = []

    def opened(number: int) -> Generator[Turn, None, None]:
        try:
            yield Turn(ROWS[0], RINGMQ, interrupt)
        finally:
            closed.append(number)

    with pytest.raises(KeyboardInterrupt):
        run_rounds(Session(ROWS, opened), lambda text: None)
    assert closed == [0]


def interrupt() -> Measurement:
    raise KeyboardInterrupt


def bench_of(folder: Path, last: Turn | None = None) -> Command:
    @contextmanager
    def opened(options: Options) -> Iterator[Session]:
        yield Session(ROWS, lambda number: (yield from (*turns(number), *([last] if last else []))), options.rounds)

    def table(report: Document) -> str:
        return sides_table(report, {"ours": (RINGMQ, "")})

    return Command("small", "A small bench.", str(folder), opened, table, ROWS, files=("small.json", "small.md"))


def test_an_interrupted_bench_keeps_what_it_has_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench_of(tmp_path, Turn(ROWS[1], RINGMQ, interrupt)).main([])
    report = json.loads((tmp_path / "small.json").read_text())
    assert report["rows"][0]["systems"][RINGMQ]["runs"] == 1 and not report["rows"][1]["systems"]
    assert (tmp_path / "small.md").read_text() in capsys.readouterr().out


def test_a_row_without_a_run_that_counts_is_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = bench_of(tmp_path, Turn(ROWS[1], RINGMQ, lambda: measured(1)))
    assert bench.main(["--rounds", "1"]) == 1
    assert "short: two: no run counts" in capsys.readouterr().out
    assert bench_of(tmp_path).main(["--rounds", "1"]) == 0


def test_cells_of_a_printed_table_are_of_one_width() -> None:
    lines = markdown_table(["a", "long"], [["longer", "b"]], is_aligned=True).splitlines()
    assert lines == ["| a      | long |", "|---|---|", "| longer | b    |"]
