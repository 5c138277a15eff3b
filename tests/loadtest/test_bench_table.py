"""What the bench makes of its measurements: medians, goals, the JSON document, the table and the plot."""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.loadtest.bench.main import BENCH, circumstances
from ringmq.loadtest.bench.plan import Plan
from ringmq.loadtest.bench.report import draw, loader_summary
from ringmq.loadtest.bench.rows import Context, found_again, send_measurement, transaction_row
from ringmq.loadtest.bench.table import ROWS, rows_named
from ringmq.loadtest.load.process_stats import cpu_seconds, family, private_bytes, shared_segments
from ringmq.loadtest.load.tools import Tools, build_tools
from ringmq.loadtest.measuring.command import document
from ringmq.loadtest.measuring.measurement import RINGMQ, Goal, Measurement, evaluate, summarize
from ringmq.loadtest.measuring.rounds import Session, run_rounds

SMAPS = """\
7f0000000000-7f0000010000 rw-s 00000000 00:1a 77 /dev/shm/ringmq-none-plane
Size:                 64 kB
Rss:                  40 kB
7f0000010000-7f0000020000 rw-s 00010000 00:1a 77 /dev/shm/ringmq-none-plane
Rss:                   4 kB
7f0000020000-7f0000030000 rw-s 00000000 08:01 99 /data/store/commitlog/00000000000000000000
Rss:                1000 kB
7f0000030000-7f0000040000 rw-s 00000000 00:01 5 /memfd:ring (deleted)
Rss:                   8 kB
7f0000040000-7f0000050000 rw-p 00000000 00:00 0
Rss:                  16 kB
"""


def measured(rate: float, ok: bool = True, **more: float) -> Measurement:
    return Measurement({"messages_per_s": rate, **more}, ok=ok, note="" if ok else "lost")


def test_median_and_spread_leave_out_runs_that_do_not_count() -> None:
    summary = summarize([measured(10), measured(99, ok=False), measured(30), measured(14)])
    assert (summary.runs, summary.counted) == (4, 3)
    assert summary.median == {"messages_per_s": 14}
    assert summary.spread == {"messages_per_s": 20}
    assert list(summary.notes) == ["lost"]


def test_max_is_the_median_of_the_maxima() -> None:
    summary = summarize([measured(1, max=5.0), measured(1, max=900.0), measured(1, max=7.0)])
    assert summary.median["max"] == 7.0


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (Goal("messages_per_s", "stock", at_least=3), 4.0, True),
        (Goal("messages_per_s", "stock", at_least=4.1), 4.0, False),
        (Goal("messages_per_s", "ceiling", at_least=0.5), 0.4, False),
        (Goal("max", "stock", at_most=0.1), 0.05, True),
        (Goal("messages_per_s", "absolute", at_least=40), 40.0, True),
        (Goal("nothing", "stock", at_least=1), None, None),
    ],
)
def test_goals_are_judged_by_ratio(goal: Goal, value: float | None, met: bool | None) -> None:
    summaries = {
        "stock": summarize([measured(10, max=100.0)]),
        "ringmq": summarize([measured(40, max=5.0)]),
        "ceiling": summarize([measured(100)]),
    }
    verdict = evaluate(goal, summaries)
    assert verdict.value == (None if value is None else pytest.approx(value))
    assert verdict.met is met


def test_a_goal_without_its_reference_is_open() -> None:
    assert evaluate(Goal("messages_per_s", "stock", at_least=1), {"ringmq": summarize([measured(1)])}).met is None
    assert evaluate(Goal("messages_per_s", "stock", at_least=1), {}).value is None


def test_the_table_holds_the_promised_rows() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    rows = rows_named([], ["broker"])
    goals = {(row.name, goal.metric): goal.text() for row in rows for goal in row.goals if goal.reference != "ceiling"}
    assert goals == {
        ("1x1", "messages_per_s"): ">=1.5x stock",
        ("64x1", "messages_per_s"): ">=3x stock",
        ("64x1-1k", "messages_per_s"): ">=3x stock",
        ("64x16", "messages_per_s"): ">=10x stock",
        ("batch", "messages_per_s"): ">=5x stock",
        ("pull", "messages_per_s"): ">=2.3x stock",
        ("pull-sql", "messages_per_s"): ">=5x stock",
        ("transaction", "messages_per_s"): ">=5x stock",
        ("transaction", "cpu_us_per_pair"): "<=0.2x stock",
        ("send-backs", "messages_per_s"): ">=3x stock",
        ("pop-batch", "messages_per_s"): ">=5x stock",
        ("pop-batch", "cpu_us"): "<=0.2x stock",
        ("pop-acks", "messages_per_s"): ">=10x stock",
        ("pop-one", "cpu_us"): "<=12.5",
        ("pop-revival", "p99_ms"): "<=50",
        ("pop-revival", "max_ms"): "<=0.1x stock",
        ("pop-wave", "messages_per_s"): ">=5x stock",
        ("pop-log-bytes", "log_bytes"): "<=0.25x stock",
        ("pop-logged-acks", "to_plain"): ">=0.5",
        ("poll-late", "to_pulls"): "<=2",
        ("poll-wake", "p99_ms"): "<=5",
        ("poll-groups", "p99_ms"): "<=100",
        ("poll-beside", "batch_ratio"): ">=0.95",
        ("poll-beside", "acks_ratio"): ">=0.95",
        ("poll-beside", "one_ratio"): ">=0.95",
        ("open-loop", "p99_9"): "<=0.1x stock",
        ("open-loop", "max"): "<=0.1x stock",
        ("delay-sends", "to_plain"): ">=0.8",
        ("delay-sends", "messages_per_s"): ">=8x stock",
        ("delay-due", "messages_per_s"): ">=5x stock",
        ("delay-late", "above_p50_ms"): "<=2",
        ("delay-late", "above_p99_ms"): "<=10",
        ("delay-late", "early"): "<=0",
        ("delay-beside", "send_ratio"): ">=0.95",
        ("delay-beside", "pull_ratio"): ">=0.95",
        ("delay-beside", "total_mib"): "<=250",
        ("timer-accept", "to_plain"): ">=0.7",
        ("timer-accept", "messages_per_s"): ">=10x stock",
        ("timer-slot", "messages_per_s"): ">=5x stock",
        ("timer-slot", "first_ms"): "<=10",
        ("timer-late", "above_p50_ms"): "<=2",
        ("timer-late", "above_p99_ms"): "<=10",
        ("timer-late", "above_p99_9_ms"): "<=50",
        ("timer-late", "early"): "<=0",
        ("timer-beside", "send_ratio"): ">=0.7",
        ("timer-beside", "p99_ratio"): "<=3",
        ("timer-waiting", "accept_ratio"): ">=0.9",
        ("timer-waiting", "total_mib"): "<=250",
        ("timer-waiting", "idle_percent"): "<=1",
        ("timer-waiting", "restart_s"): "<=2",
        ("java", "messages_per_s"): ">=1.3x stock",
        ("sdk-batch", "messages_per_s"): ">=100000",
        ("sdk-await", "messages_per_s"): ">=15000",
        ("sdk-pop-batch", "messages_per_s"): ">=20000",
        ("sdk-pop-tasks", "messages_per_s"): ">=6000",
        ("sdk-pop-one", "to_round_trips"): ">=0.45",
        ("sdk-push", "to_handlers"): ">=0.15",
        ("sdk-push", "cpu_to_sleeps"): "<=10",
        ("idle", "cpu_percent"): "<=1",
        ("memory", "total_mib"): "<=250",
        ("sync", "messages_per_s"): ">=3x stock",
        ("restart", "hot_s"): "<=3",
    }
    against_ceiling = {row.name: goal.text() for row in ROWS for goal in row.goals if goal.reference == "ceiling"}
    assert against_ceiling == {
        "1x1": ">=0.75x ceiling",
        "64x1": ">=0.5x ceiling",
        "64x1-1k": ">=0.5x ceiling",
        "64x16": ">=0.25x ceiling",
        "pull": ">=0.8x ceiling",
        "sync": ">=0.4x ceiling",
    }


def test_the_table_holds_the_promised_rows_of_replication() -> None:
    rows = rows_named([], ["replication"])
    assert {(row.name, goal.metric): goal.text() for row in rows for goal in row.goals} == {
        ("repl-1x1", "messages_per_s"): ">=1.5x stock",
        ("repl-64x1", "messages_per_s"): ">=3x stock",
        ("repl-64x16", "messages_per_s"): ">=10x stock",
        ("repl-batch", "messages_per_s"): ">=5x stock",
        ("repl-cost", "kept"): ">=0.75",
        ("repl-link-2", "kept"): ">=0.9",
        ("repl-link-20", "kept"): ">=0.9",
        ("repl-catch-up", "of_copy"): ">=0.5",
        ("repl-production", "p99_ratio"): "<=1.5",
        ("repl-stall", "grown_mib"): "<=16",
        ("repl-link-loss", "reset_ms"): "<=50",
        ("repl-link-loss", "close_ms"): "<=50",
        ("repl-link-loss", "silence_first_ms"): "<=3050",
        ("repl-link-loss", "silence_later_ms"): "<=10",
    }


def test_rows_are_chosen_by_name() -> None:
    assert [row.name for row in rows_named(["batch", "1x1"])] == ["1x1", "batch"]
    assert rows_named([]) == list(ROWS)
    with pytest.raises(ValueError, match="nosuch"):
        rows_named(["nosuch"])
    with pytest.raises(SystemExit):
        BENCH.parse(["--rows", "nosuch"])
    with pytest.raises(SystemExit):
        BENCH.parse(["--systems", "kafka"])
    with pytest.raises(SystemExit):
        BENCH.parse(["--only", "nosuch"])
    assert BENCH.parse(["--only", "replication"]).row_list == rows_named([], ["replication"])


CHECK: Mapping[str, Any] = {
    "acked": 5,
    "crc_sum": 9,
    "queues_wrong": 0,
    "queue_ms": 1.0,
    "index_ms": 2.0,
    "keys_asked": 3,
    "keys_found": 3,
    "read": 5,
    "read_crc_sum": 9,
    "wrong_crc": 0,
    "wrong_offset": 0,
    "trouble": "",
    "ok": True,
}


@pytest.mark.parametrize(
    "damage",
    [{"read": 4}, {"read_crc_sum": 8}, {"queues_wrong": 1}, {"keys_found": 2}, {"wrong_crc": 1}, {"wrong_offset": 1}],
)
def test_a_loss_never_counts(damage: dict[str, object]) -> None:
    assert found_again(dict(CHECK))
    assert not found_again({**CHECK, **damage})


REPORT: dict[str, object] = {
    "check": CHECK,
    "errors": {},
    "trouble": "",
    "bad_answers": 0,
    "messages_per_s": 1.0,
    "latency_us": {"p50": 1.0},
    "loader_cpu": {"share": 0.5},
    "remark": "",
}


def test_a_run_that_measured_nothing_does_not_count() -> None:
    assert send_measurement(dict(REPORT), in_time=True).ok
    nothing = send_measurement({**REPORT, "messages_per_s": 0.0}, in_time=True)
    assert not nothing.ok
    assert "after the warm-up" in nothing.note


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_row_of_transactions_counts_the_worker_that_it_starts(is_counted: bool) -> None:
    """The first run starts the worker. Without its time, the row does not count."""
    asked: list[int] = []

    def run(_target: object, _command: str, **options: Any) -> dict[str, object]:
        asked.append(options["messages"])
        used = {"write": 0.25, **({"transactions": 0.5} if is_counted else {})}
        return {**REPORT, "messages_per_s": 1000.0, "server_cpu": used}

    context = SimpleNamespace(
        run=run, topic=str, check_keys=1, settle_ms=1, warmup_s=0.0, seconds=1.0, messages_max=5000, best_rate={}
    )
    measured = transaction_row(cast(Context, context), cast(Any, SimpleNamespace(name=RINGMQ)))
    assert asked == [64, 5000]
    assert measured.ok == is_counted
    assert measured.values.get("cpu_us_per_pair") == (750.0 if is_counted else None)


def test_a_worker_that_the_load_starts_is_in_the_processor_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader follows the processes of the start. Of later ones, the whole time counts."""
    found = iter(({5: "write"}, {5: "write", 6: "services"}))
    report = {"window_s": 2.0, "watched": {"5": {"user_s": 0.5, "system_s": 0.5}}}
    loader = SimpleNamespace(run=lambda _command, watch: dict(report) if watch == "5" else {})
    monkeypatch.setattr(Context, "loader", lambda _context, _port: loader)
    monkeypatch.setattr("ringmq.loadtest.bench.rows.cpu_seconds", lambda pids: 0.25 if pids == [6] else 99.0)
    context = Context(cast(Any, None), Path(), [0], None)
    target = SimpleNamespace(port=1, pids=lambda: next(found))
    assert context.run(cast(Any, target), "send")["server_cpu"] == {"write": 0.5, "services": 0.125}


def test_a_late_index_counts_against_ringmq_and_is_noted_for_stock() -> None:
    report = {**REPORT, "check": {**CHECK, "index_ms": 1500.0, "ok": False}}
    assert not send_measurement(report, in_time=True).ok
    late = send_measurement(report, in_time=False)
    assert late.ok
    assert "1500" in late.note


@pytest.fixture(scope="module")
def tools() -> Tools:
    return build_tools()


@pytest.mark.io_uring
def test_a_whole_run_against_the_ceiling(tools: Tools, tmp_path: Path) -> None:
    context = Context(tools, tmp_path, sorted(os.sched_getaffinity(0)), None, seconds=0.2, warmup_s=0.05)
    plan = Plan(context, rows_named(["1x1", "batch", "pull", "ceiling-max"]), systems=("ceiling",))
    said: list[str] = []
    session = Session(plan.rows, plan.turns, 2, settle_s=0, header=partial(circumstances, context))
    run_rounds(session, said.append)
    report = json.loads(json.dumps(document(session, tmp_path, {"seconds": 0.2})))
    assert report["format"] == 2
    header = {"kernel", "processor", "cpus", "file_system", "flush", "settings", "server_cpus", "loader_cpu", "rounds"}
    assert header <= set(report["header"])
    assert [row["name"] for row in report["rows"]] == ["1x1", "batch", "pull", "ceiling-max"]
    for row in report["rows"]:
        summary = row["systems"]["ceiling"]
        assert summary["counted"] == summary["runs"] == 2, summary["notes"]
        assert summary["median"]["messages_per_s"] > 0
        assert {"p50", "p99", "p99_9", "p99_99", "max"} <= set(summary["median"])
        assert all(goal["met"] is None for goal in row["goals"])
    assert "1 connection, 1 in flight, 200 B" in BENCH.text(report)
    assert "highest proven rate" in loader_summary(report)
    draw(report, tmp_path / "bench.svg")
    assert (tmp_path / "bench.svg").read_text().lstrip().startswith("<?xml")
    assert said[0] == "round 1 of 2"


def test_a_row_that_fails_is_noted_and_the_rest_goes_on(tools: Tools, tmp_path: Path) -> None:
    missing = Tools(tools.load, tmp_path / "no-such-program", tools.link)
    context = Context(missing, tmp_path, sorted(os.sched_getaffinity(0)), None, seconds=0.1)
    plan = Plan(context, rows_named(["1x1", "batch"]), systems=("ceiling",))
    results = run_rounds(Session(plan.rows, plan.turns), lambda text: None)
    for row in plan.rows:
        (run,) = results[row.name]["ceiling"]
        assert not run.ok
        assert "No such file" in run.note


def test_shared_segments_count_once_and_store_files_never() -> None:
    assert shared_segments(SMAPS) == {"/dev/shm/ringmq-none-plane": 44 * 1024, "/memfd:ring:5": 8 * 1024}


def test_own_process_is_measured() -> None:
    assert family(os.getpid())[0] == os.getpid()
    assert cpu_seconds([os.getpid()]) > 0
    used = private_bytes([os.getpid()])
    assert used["anonymous"] > 1 << 20
    assert used["total"] == used["anonymous"] + used["shared"]
    gone = 2**22 + 1  # above every process id of this kernel
    assert private_bytes([gone])["total"] == 0
    assert cpu_seconds([gone]) == 0


def test_a_process_that_ends_while_its_files_are_read_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path) -> str:
        raise ProcessLookupError(f"[Errno 3] No such process: {path}")

    monkeypatch.setattr(Path, "read_text", gone)
    assert private_bytes([os.getpid()])["total"] == 0
    assert cpu_seconds([os.getpid()]) == 0
