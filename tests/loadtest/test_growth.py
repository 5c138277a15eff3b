"""The growth bench: its points, goals, tables and plots, and every scenario once, as small as it goes."""

import json
import resource
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import cast

import pytest

from ringmq.broker.exporter.server import ExporterServer, Pages
from ringmq.broker.exporter.text import PageText
from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.growth import bench as shared
from ringmq.loadtest.growth import long_runs, polls, timers
from ringmq.loadtest.growth import main as growth
from ringmq.loadtest.growth import points as growth_points
from ringmq.loadtest.growth import scrapes as scraping
from ringmq.loadtest.growth.bench import (
    LAST,
    Bench,
    GrowthError,
    MemoryWatch,
    Point,
    Scenario,
    need_files,
    need_space,
    queue_kib,
)
from ringmq.loadtest.growth.long_runs import (
    BACKLOG,
    SOAK,
    backlog_values,
    ended,
    soak_points,
    soak_settings,
    soak_values,
)
from ringmq.loadtest.growth.page_reader import KEPT_BYTES, PageReader
from ringmq.loadtest.growth.polls import QUICK as QUICK_POLLS
from ringmq.loadtest.growth.polls import WAITING
from ringmq.loadtest.growth.pops import POPS
from ringmq.loadtest.growth.pops import QUICK as QUICK_POPS
from ringmq.loadtest.growth.report import draw, tables
from ringmq.loadtest.growth.scenarios import SHORT
from ringmq.loadtest.growth.scrapes import SCRAPES, Scraper
from ringmq.loadtest.growth.timers import QUICK, TIMERS
from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.measuring.command import document
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import RINGMQ, Goal, Measurement, goals
from ringmq.loadtest.measuring.rounds import run_rounds
from ringmq.loadtest.measuring.tables import Column, markdown_table
from ringmq.store.retention import used_ratio
from tests.waiting import wait_until

SMALL = {"topics": (4,), "queues": (16,), "connections": (24,), "groups": (2,), "slow-consumers": (2,)}


@pytest.fixture(scope="module")
def small_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """As short as a bench can be."""
    context = Context(
        build_tools(),
        tmp_path_factory.mktemp("growth"),
        cpus=[],
        loader_cpu=None,
        seconds=0.3,
        warmup_s=0.0,  # the messages may be sent within any
        messages_max=4000,
        check_keys=4,
        settle_ms=60_000,
    )
    settings: dict[str, str | int | bool] = {"mappedFileSizeCommitLog": 16 << 20, "diskMaxUsedSpaceRatio": 95}
    return Bench(context, settings, soak_s=9.0, soak_rate=500.0, say=lambda text: None)


def test_the_promised_goals_stand_at_their_points() -> None:
    goals = {
        (scenario.name, at, goal.metric): goal.text()
        for scenario in (*SHORT, *SCRAPES, *TIMERS, *POPS, *WAITING, BACKLOG, SOAK)
        for at, some in scenario.goals.items()
        for goal in some
    }
    assert goals == {
        ("topics", 256, "kept"): ">=0.85",
        ("queues", 10_000, "queue_kib"): "<=4",
        ("queues", 10_000, "queue_file_kib"): "<=4",
        ("queues", 10_000, "start_s"): "<=5",
        ("connections", 10_000, "kept"): ">=0.8",
        ("connections", 10_000, "private_mib"): "<=400",
        ("connections-1", 10_000, "kept"): ">=0.8",
        ("connections-1", 10_000, "private_mib"): "<=400",
        ("scrapes", 1, "series"): ">=100000",
        ("scrapes", 1, "scrape_ms"): "<=200",
        ("scrapes", 1, "p99_ratio"): "<=1.1",
        ("scrapes-1", 1, "series"): ">=100000",
        ("scrapes-1", 1, "scrape_ms"): "<=200",
        ("scrapes-1", 1, "p99_ratio"): "<=1.1",
        ("timers", 1e7, "kept"): ">=0.9",
        ("timers", 1e7, "private_mib"): "<=238",
        ("timers", 1e7, "start_s"): "<=2",
        ("timers", 1e7, "idle_percent"): "<=1",
        ("open-messages", 1e6, "kept"): ">=0.9",
        ("open-messages", 1e6, "window_bytes"): "<=64",
        ("open-messages", 1e6, "private_bytes"): "<=32",
        ("open-messages", 1e6, "start_s"): "<=1",
        ("pollers", 10_000, "poller_bytes"): "<=1024",
        ("pollers", 10_000, "polls_percent"): "<=2",
        ("polled-topics", 10_000, "poller_bytes"): "<=1024",
        ("polled-topics", 10_000, "polls_percent"): "<=2",
        ("soak", LAST, "grown_mib"): "<=8",
        ("soak", LAST, "p99_9_ratio"): "<=1.25",
        ("soak", LAST, "errors"): "<=0",
        ("soak", LAST, "lost"): "<=0",
    }
    for scenario in (*SHORT, *TIMERS, *POPS, *WAITING):
        assert set(scenario.goals) <= set(scenario.values), scenario.name


def test_points_are_compared_with_the_first_one() -> None:
    points = [Point(at, Measurement({"messages_per_s": rate})) for at, rate in ((1, 200.0), (4, 100.0), (16, 300.0))]
    assert [point.measurement.values["kept"] for point in growth_points.with_saved(points)] == [1.0, 0.5, 1.5]


def two_points(rates: Sequence[float], goals: dict[float, tuple[Goal, ...]]) -> Scenario:
    def run(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
        for at, rate in zip(values, rates, strict=True):
            if not rate:
                raise GrowthError("no room")
            yield Point(at, Measurement({"messages_per_s": rate, "p99": 1000.0, "private_mib": 80.0}))

    return Scenario("twice", "two points", "things", (1, 8), run, (Column("msg/s", "messages_per_s"),), goals)


def report_of(bench: Bench, scenario: Scenario, rounds: int) -> Document:
    session = growth_points.session_of(bench, [scenario], rounds)
    run_rounds(session, bench.say)
    found: Document = json.loads(json.dumps(document(session, bench.context.folder)))
    return found


def test_tables_goals_and_plots(small_bench: Bench, tmp_path: Path) -> None:
    scenario = two_points(
        (100.0, 70.0), {8: (Goal("kept", "absolute", at_least=0.8),), LAST: (Goal("p99", "absolute", at_most=2000),)}
    )
    report = report_of(small_bench, scenario, 2)
    assert [row["place"] for row in report["rows"]] == [
        {"scenario": "twice", "axis": "things", "at": 1}, {"scenario": "twice", "axis": "things", "at": 8},
    ]  # fmt: skip
    assert [len(row["systems"][RINGMQ]["raw"]) for row in report["rows"]] == [2, 2]
    assert [len(row["goals"]) for row in report["rows"]] == [0, 2]
    text = replace(growth.BENCH, table=partial(tables, scenarios=[scenario])).text(report)
    assert "| things | msg/s | counts |" in text
    assert "| 8 | 70 | yes |" in text
    assert "- twice 8: kept **0.7** (>=0.8: SHORT)" in text
    assert growth.BENCH.faults(report) == ["twice 8: kept"]
    draw(report, tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").read_text().lstrip().startswith("<?xml")


def test_free_memory_is_touched_before_each_scenario(
    small_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def run(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
        done.append("run")
        return two_points((1.0, 1.0), {}).run(bench, values)

    monkeypatch.setattr(growth_points, "touch_free_memory", lambda: done.append("touch"))
    scenario = replace(two_points((1.0, 1.0), {}), run=run)
    for bench, expected in ((small_bench, ["run"] * 2), (replace(small_bench, warm_memory=True), ["touch", "run"] * 2)):
        report = report_of(bench, scenario, 2)
        assert (done, report["header"]["warm_memory"]) == (expected, "touch" in expected)
        done.clear()
    with growth.bench_of(growth.BENCH.parse(["--warm-memory", "--folder", str(tmp_path)])) as warmed:
        assert warmed.warm_memory


def test_a_scenario_that_cannot_go_on_is_noted_at_its_point(small_bench: Bench) -> None:
    scenario = two_points((100.0, 0.0), {})
    report = report_of(small_bench, scenario, 1)
    assert growth.BENCH.faults(report) == ["twice 8: no run counts"]
    assert "no room" in growth.BENCH.text(report)


def test_a_place_without_a_point_is_left_out(small_bench: Bench) -> None:
    """The sender of a soak may end before its last intervals. Its last point has the place of the end."""

    def run(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
        yield Point(1, Measurement({"messages_per_s": 4.0}))
        yield Point(8, Measurement({"messages_per_s": 3.0}))

    scenario = replace(two_points((), {LAST: goals("kept >=0.8")}), run=run, values=(1, 4, 8))
    report = report_of(small_bench, scenario, 1)
    assert [len(row["systems"]) for row in report["rows"]] == [1, 0, 1]
    assert growth.BENCH.faults(report) == ["twice 8: kept"]


def test_the_broker_of_a_last_point_is_stopped_before_the_next_scenario(small_bench: Bench) -> None:
    seen: list[str] = []

    def run(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
        for at in values:
            seen.append("start")
            yield Point(at, Measurement({"messages_per_s": 1.0}))
            seen.append("stop")

    scenario = replace(two_points((), {}), run=run)
    run_rounds(growth_points.session_of(small_bench, [scenario, replace(scenario, name="again")], 1), small_bench.say)
    assert seen == ["start", "stop"] * 4


def test_a_table_says_what_was_not_measured() -> None:
    column = Column("p99 ms", "p99", "{:.2f}", 1e-3)
    assert markdown_table(["n", column.title], [["1", column.text({"p99": 1234.0})], ["2", column.text({})]]) == (
        "| n | p99 ms |\n|---|---|\n| 1 | 1.23 |\n| 2 | - |\n"
    )


def test_options_choose_scenarios_and_points(tmp_path: Path) -> None:
    options = growth.BENCH.parse(["--only", "topics,soak,backlog", "--values", "topics=64,1", "--backlog-gb", "3"])
    chosen = {scenario.name: scenario.values for scenario in growth.scenarios_of(options, 10 << 30)}
    assert chosen["topics"] == (1, 64)
    assert chosen["backlog"] == (1, 2, 3)
    assert (len(chosen["soak"]), chosen["soak"][-1]) == (60, 60.0)
    assert len(growth.scenarios_of(growth.BENCH.parse([]), 10 << 30)) == len(growth.SCENARIOS)
    for wrong in (["--only", "nosuch"], ["--values", "soak=1"], ["--values", "topics=x"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            growth.BENCH.parse(wrong)


def test_a_backlog_is_as_large_as_the_disk_allows() -> None:
    assert backlog_values(500 << 30, 0)[-2:] == (32, 50)
    assert backlog_values(int(20e9), 0) == (1, 2, 4, 8, 15)
    assert backlog_values(0, 0.25) == (0.25,)


def test_what_the_machine_does_not_have_is_said_before(small_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GrowthError, match=r"the run needs 1000000.0 GB of disk"):
        need_space(small_bench, 10**15, "the run")
    raised: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(shared.resource, "setrlimit", lambda which, limits: raised.append((which, limits)))
    monkeypatch.setattr(shared.resource, "getrlimit", lambda which: (1024, 8192))
    need_files(4096)
    assert raised == [(resource.RLIMIT_NOFILE, (8192, 8192))]
    with pytest.raises(GrowthError, match="10000 connections need 14096 open files"):
        need_files(10_000)


def test_blocks_of_queue_files_and_of_their_folders_are_counted_apart(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    with (folder / f"{0:020}").open("wb") as file:
        file.write(b"x" * 20)
        file.truncate(6_000_000)
    (tmp_path / "consumequeue" / "Other" / "0").mkdir(parents=True)
    files, folders = queue_kib(tmp_path, "T", 1)
    assert 0 < files < 100  # sparse
    assert folders == sum(path.stat().st_blocks / 2 for path in (folder.parent, folder))


@pytest.fixture
def modest_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of a test machine may be small, or full of other tests."""
    monkeypatch.setattr(long_runs, "SOAK_DISK_BYTES", 256 << 20)
    monkeypatch.setattr(long_runs, "DISK_RATIO_MAX", 100)


def test_a_soak_needs_room_on_the_disk() -> None:
    settings = soak_settings(500 << 30, 500 << 30)
    assert settings["diskMaxUsedSpaceRatio"] == 52
    with pytest.raises(GrowthError, match="84 % full"):
        soak_settings(80 << 30, 20 << 30)


@pytest.mark.usefixtures("modest_soak")
def test_a_soak_counts_the_disk_as_retention_does(tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)
    least = 100 * used_ratio(tmp_path)  # with nothing more than now; others write, too
    assert cast(int, soak_settings(usage.used, usage.free)["diskMaxUsedSpaceRatio"]) > least - 1


@pytest.mark.io_uring
@pytest.mark.usefixtures("modest_soak")
def test_a_soak_ends_when_its_consumer_gives_up(small_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = long_runs._soak_consumer
    monkeypatch.setattr(long_runs, "_soak_consumer", lambda *args, **options: whole(*args, **options, seconds=0.5))
    with pytest.raises(GrowthError, match="a consumer ended after"):
        list(SOAK.run(replace(small_bench, soak_s=600.0), soak_values(600)))


def test_a_soak_is_judged_by_its_thirds_and_by_what_came_out() -> None:
    stretches = [
        {"at_s": float(n), "seconds": 1.0, "messages": 100, "p50": 1.0, "p99": 2.0, "p99_9": 10.0 + n, "max": 50.0}
        for n in range(9)
    ]
    sent = {
        "intervals": stretches, "acked": 900, "acked_crc_sum": 7, "errors": {"2": 3}, "unanswered": 1, "disconnects": 0,
        "bad_answers": 0, "ok": False, "watched": {}, "messages": 900,
    }  # fmt: skip
    read = {"read": 898, "read_crc_sum": 6, "ok": True}
    samples = [(n + 0.5, 80.0 + n) for n in range(9)]
    points = list(soak_points(sent, read, samples, soak_values(9)[:9]))
    assert len(points) == 9
    assert list(soak_points(sent, read, samples, soak_values(9)[:11]))[-1].at == soak_values(9)[10]
    last = points[-1].measurement
    assert not last.ok
    assert "consumed 898 of 900" in last.note
    assert (last.values["errors"], last.values["lost"], last.values["grown_mib"]) == (4, 2, 6)
    assert last.values["p99_9_ratio"] == pytest.approx(17 / 11)
    read.update(read=900, read_crc_sum=7)
    whole = {**sent, "ok": True}
    assert next(soak_points(whole, read, samples, soak_values(9)[:9])).measurement.ok
    for missing, third in ((samples[3:], "first"), (samples[:6], "last")):
        unseen = list(soak_points(whole, read, missing, soak_values(9)[:9]))[-1].measurement
        assert not unseen.ok
        assert unseen.note == f"no sample of memory in the {third} third"
        assert "grown_mib" not in unseen.values
    replaced = next(soak_points(whole, read, samples, soak_values(9)[:9], ["write (process 7) ended"])).measurement
    assert (replaced.ok, replaced.note) == (False, "write (process 7) ended")


def test_a_worker_with_a_new_process_has_ended_and_a_new_one_has_not() -> None:
    before = {1: "supervisor", 7: "write", 8: "flush", 9: "other"}
    assert ended(before, before | {20: "metrics"}) == []
    assert ended(before, {1: "supervisor", 8: "flush", 21: "write"}) == ["write (process 7) ended during the soak"]


def test_memory_that_could_not_be_looked_at_once_is_an_error() -> None:
    failed = threading.Event()

    def pids() -> dict[int, str]:
        if failed.is_set():
            return {}
        failed.set()
        raise PermissionError("/proc/7/smaps")

    def look() -> None:
        with MemoryWatch(pids, 0.001):
            assert failed.wait(60)

    with pytest.raises(GrowthError, match="PermissionError: /proc/7/smaps"):
        look()


@pytest.mark.io_uring
@pytest.mark.parametrize("scenario", [item for item in SHORT if item.name in SMALL], ids=lambda scenario: scenario.name)
def test_a_scenario_measures_its_points(scenario: Scenario, small_bench: Bench) -> None:
    values = SMALL[scenario.name]
    points = list(scenario.run(small_bench, values))
    assert [point.at for point in points] == list(values)
    for point in points:
        assert point.measurement.ok, point.measurement.note
        shown = {column.name for column in scenario.columns} - {"kept"}
        assert shown <= set(point.measurement.values)
    assert not small_bench.store.exists()


@pytest.mark.io_uring
def test_a_backlog_is_pulled_and_started_on(small_bench: Bench) -> None:
    (point,) = list(BACKLOG.run(small_bench, (0.01,)))
    assert point.measurement.ok, point.measurement.note
    assert {"pulled_per_s", "pull_p99", "start_s", "private_mib"} <= set(point.measurement.values)


@pytest.mark.io_uring
@pytest.mark.parametrize("scenario", SCRAPES, ids=lambda scenario: scenario.name)
def test_scrapes_beside_sends(scenario: Scenario, small_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SERIES_TOPICS", 6), ("SERIES_GROUPS", 3), ("TURNS", 1)):
        monkeypatch.setattr(scraping, name, value)
    without, beside = scenario.run(small_bench, (0, 20))
    for point in (without, beside):
        assert point.measurement.ok, point.measurement.note
    assert "scrape_ms" not in without.measurement.values
    shown = {column.name for column in scenario.columns} - {"kept"}
    assert shown <= set(beside.measurement.values)
    assert beside.measurement.values["series"] > 6 * 3 * 5


@pytest.mark.io_uring
def test_timers_wait_beside_sends_of_others(small_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "SETTLE_MAX_S", 0.0)
    monkeypatch.setattr(timers, "LEAD_S", 4.0)
    bench = replace(small_bench, context=replace(small_bench.context, idle_seconds=0.1))
    (_, topics) = TIMERS
    (point,) = topics.run(bench, (3,))
    assert point.measurement.ok, point.measurement.note
    assert {column.name for column in topics.columns} - {"kept"} <= set(point.measurement.values)
    assert set(QUICK) == {scenario.name for scenario in TIMERS}


@pytest.mark.io_uring
@pytest.mark.parametrize(("scenario", "at"), [(POPS[0], 300), (POPS[1], 2)], ids=["messages", "groups"])
def test_open_messages_are_open_after_a_start(small_bench: Bench, scenario: Scenario, at: float) -> None:
    bench = replace(small_bench, context=replace(small_bench.context, idle_seconds=0.1))
    (point,) = scenario.run(bench, (at,))
    assert point.measurement.ok, point.measurement.note
    assert {column.name for column in scenario.columns} - {"kept"} <= set(point.measurement.values)
    assert set(QUICK_POPS) == {scenario.name for scenario in POPS}


@pytest.mark.io_uring
@pytest.mark.parametrize(("scenario", "at"), [(WAITING[0], 1000), (WAITING[1], 20)], ids=["one", "topics"])
def test_pops_wait_beside_sends_of_others(
    small_bench: Bench, monkeypatch: pytest.MonkeyPatch, scenario: Scenario, at: float
) -> None:
    monkeypatch.setattr(polls, "SETTLED_S", 0.1)
    monkeypatch.setattr(polls, "SETTLE_MAX_S", 0.0)
    bench = replace(small_bench, context=replace(small_bench.context, idle_seconds=0.5))
    (point,) = scenario.run(bench, (at,))
    assert point.measurement.ok, point.measurement.note
    weighed = {"poller_bytes", "topic_bytes"} & set(point.measurement.values)
    assert weighed == ({"poller_bytes"} if at == 1000 else set()), "of few, the memory of the processes would be told"
    shown = {column.name for column in scenario.columns} - {"kept", "poller_bytes", "topic_bytes"}
    assert shown <= set(point.measurement.values)
    assert set(QUICK_POLLS) == {scenario.name for scenario in WAITING}


@pytest.fixture
def pages() -> Iterator[tuple[ExporterServer, list[bytes]]]:
    """A server whose page has the chunks of the list."""
    chunks: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    serving = ExporterServer(listener, Pages(lambda: PageText(list(chunks)), lambda: (True, {}), lambda: (True, {})))
    with ThreadPoolExecutor(1) as pool, listener:
        pool.submit(serving.serve_forever, 0.01)
        yield serving, chunks
        serving.shutdown()


@pytest.mark.parametrize(
    ("chunks", "last"),
    [
        ([], b""),
        ([b"x" * 5000, b"end\n"], b"x" * (KEPT_BYTES - 4) + b"end\n"),
        ([bytes(3 << 20), b"y" * (KEPT_BYTES + 7)], b"y" * KEPT_BYTES),
    ],
    ids=["empty", "short end", "large"],
)
def test_the_end_of_a_page_is_what_is_read_of_it(
    pages: tuple[ExporterServer, list[bytes]], chunks: list[bytes], last: bytes
) -> None:
    serving, given = pages
    given += chunks
    with PageReader(f"127.0.0.1:{serving.server_port}", 60) as reader:
        assert [reader.last_of("/metrics") for _ in range(3)] == [last] * 3, "over one connection"
        with pytest.raises(HTTPException, match="404 Not Found"):
            reader.last_of("/nothing")


@pytest.mark.parametrize("length", [b"-1", b"", b"0x10", b"length"])
def test_a_page_of_another_kind_is_refused(length: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            with listener.accept()[0] as peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n" % length)

        done = pool.submit(answer)
        reader = PageReader(f"127.0.0.1:{listener.getsockname()[1]}", 60)
        with reader, pytest.raises(HTTPException, match="length was expected"):
            reader.last_of("/metrics")
        done.result(60)


def test_a_scrape_that_fails_is_no_cheap_scrape() -> None:
    with Scraper("http://127.0.0.1:9", 1000.0) as scraper:
        wait_until(lambda: scraper.error, "the scrape fails")
    with pytest.raises(GrowthError, match=r"127\.0\.0\.1:9/metrics"):
        scraper.values()


@pytest.mark.io_uring
@pytest.mark.usefixtures("modest_soak")
def test_a_soak_consumes_everything(small_bench: Bench) -> None:
    soak = replace(SOAK, values=soak_values(small_bench.soak_s)[:3])
    points = list(soak.run(small_bench, soak.values))
    assert points[-1].measurement.ok, points[-1].measurement.note
    assert (points[-1].measurement.values["errors"], points[-1].measurement.values["lost"]) == (0, 0)
