"""The cost of scrapes of 100,000 series for producers: loads with and without them, in turn, on one broker."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from types import TracebackType
from typing import Self

from ringmq.loadtest.bench.rows import MIB, send_row
from ringmq.loadtest.growth.bench import (
    COST_COLUMNS,
    RATE_COLUMNS,
    RECORD_BYTES,
    Bench,
    GrowthError,
    Point,
    Scenario,
    background,
    cpu_us,
    faults,
    need_space,
    sends,
)
from ringmq.loadtest.growth.page_reader import PageReader
from ringmq.loadtest.growth.scenarios import CONSUMER_CONNECTIONS, CONSUMER_IDLE_MS, LOAD
from ringmq.loadtest.load.process_stats import private_bytes
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.measuring.measurement import Measurement, goals, summarize
from ringmq.loadtest.measuring.tables import Column

SERIES_TOPICS, SERIES_GROUPS = 1000, 13  # each group of each topic has seven series, each topic eleven
TURNS = 24  # the p99 of one load is 0.3 to 0.9 ms, now and then 2.5 when the host takes a processor away
SLICE_US = 100  # so short that the loader does not wait long for the scraper
TIMEOUT_S = 30.0
READER_NICENESS = 10  # it stands for another machine: beside it no worker of the broker shall wait
_SERIES = b"\nringmq_series{"


def scrape(reader: PageReader) -> tuple[float, int]:
    """Return the duration in ms, and the number of series in the page's last line."""
    began = time.perf_counter()
    last = reader.last_of("/metrics")
    took_ms = 1000 * (time.perf_counter() - began)
    at = last.rfind(_SERIES)
    return took_ms, 0 if at < 0 else int(float(last[at:].split()[-1]))


def _reader(url: str) -> PageReader:
    return PageReader(url.removeprefix("http://"), TIMEOUT_S)


class Scraper:
    """Scrapes /metrics `per_s` times a second while its block runs, never for 0."""

    def __init__(self, url: str, per_s: float) -> None:
        self._url = url
        self._per_s = per_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask_on, daemon=True)
        self.took_ms: list[float] = []
        self.series: list[int] = []
        self.error: Exception | None = None

    def _ask_on(self) -> None:
        if not self._per_s:
            return
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), READER_NICENESS)
        try:
            with _reader(self._url) as reader:
                self._ask(reader)
        except (OSError, HTTPException) as error:
            self.error = error

    def _ask(self, reader: PageReader) -> None:
        due = time.monotonic()
        while not self._end.wait(max(0.0, due - time.monotonic())):
            due += 1 / self._per_s
            took_ms, series = scrape(reader)
            self.took_ms.append(took_ms)
            self.series.append(series)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def values(self) -> dict[str, float]:
        """Return the slowest scrape and the fewest series. Raises GrowthError if one failed."""
        if self.error is not None:
            raise GrowthError(f"{self._url}/metrics: {self.error}")
        if self._per_s and not self.took_ms:
            raise GrowthError(f"{self._url}/metrics: not one scrape came to its end")
        return {"scrape_ms": max(self.took_ms), "series": float(min(self.series))} if self.took_ms else {}


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate of an open loop. The processors have spare time, so no queue for them is measured."""

    share_of_best: int
    """The divisor of the best rate: 32, 64, ..."""
    burst_us: int
    """The length of a burst, 0 for single sends."""

    def __str__(self) -> str:
        way = f"in bursts of {self.burst_us / 1000:g} ms" if self.burst_us else "one by one"
        return f"1/{self.share_of_best} of the best rate {way}"


def scrapes(bench: Bench, values: Sequence[float], name: str, pace: Pace) -> Iterator[Point]:
    """Run the same load without and with one scrape a second, in turn. `p99_ratio` compares medians with the first."""
    best_messages = bench.context.messages_max
    messages = best_messages + best_messages * TURNS * len(values) // pace.share_of_best
    need_space(bench, messages * RECORD_BYTES, name)
    runs: dict[float, list[Measurement]] = {value: [] for value in values}
    with bench.broker() as target:
        _make_series(bench, target)
        with _reader(target.metrics_url) as first:
            first_ms, _ = scrape(first)  # starts the worker, which names the series
        best = sends(bench, target, "best", queues=8, **LOAD)
        rate = best.values["messages_per_s"] / pace.share_of_best
        load = {**LOAD, "depth": 256, "rate": rate, "burst_us": pace.burst_us, "slice_us": SLICE_US}
        for _ in range(TURNS):
            for value in values:
                with Scraper(target.metrics_url, value) as scraper:
                    measured = send_row("scrapes", "send", queues=8, **load)(bench.context, target)
                found = {**measured.values, **scraper.values(), **_cost(target, measured)}
                runs[value].append(Measurement(found, ok=measured.ok, note=measured.note, raw=measured.raw))
    first_p99 = summarize(runs[values[0]]).median.get("p99", 0.0)
    for value in values:
        summary = summarize(runs[value])
        found = dict(summary.median)
        if "scrape_ms" in found:
            found["scrape_ms"] = max(run.values["scrape_ms"] for run in runs[value])
            found["p99_ratio"] = found["p99"] / max(first_p99, 1e-9)
            found["first_scrape_ms"] = first_ms
        whole = summary.counted == summary.runs
        yield Point(value, Measurement(found, ok=whole, note="; ".join(summary.notes), raw=runs[value][-1].raw))


def _cost(target: RingmqTarget, measured: Measurement) -> dict[str, float]:
    """Return the costs after the load: a look at the memory takes 30 ms of a processor and would delay scrapes."""
    return {"private_mib": private_bytes(target.pids())["total"] / MIB, "cpu_us": cpu_us(dict(measured.raw))}


def _make_series(bench: Bench, target: RingmqTarget) -> None:
    """Make many groups that have read many topics and committed their offsets."""
    topic, lanes = bench.context.topic("series"), {"topics": SERIES_TOPICS, "queues": 1}
    loader = bench.context.loader(target.port)
    loader.run("create", topic=topic, **lanes)
    sent = loader.run("send", topic=topic, messages=SERIES_TOPICS, connections=1, depth=16, **lanes)
    reading = {"groups": SERIES_GROUPS, "commit": True, "connections": CONSUMER_CONNECTIONS, **lanes}
    with background(bench, target, "consume", topic=topic, idle_ms=CONSUMER_IDLE_MS, **reading) as readers:
        read = readers.report()
    if wrong := faults(sent, read, SERIES_GROUPS):
        raise GrowthError(f"the series could not be made: {'; '.join(wrong)}")


def _scenario(name: str, pace: Pace) -> Scenario:
    return Scenario(
        name,
        f"64 connections at {pace}, 200 B, beside scrapes of /metrics",
        "scrapes a second",
        (0, 1),
        lambda bench, values: scrapes(bench, values, name, pace),
        (
            *RATE_COLUMNS,
            Column("max us", "max"),
            Column("series", "series"),
            Column("first scrape ms", "first_scrape_ms", "{:.0f}"),
            Column("slowest scrape ms", "scrape_ms", "{:.0f}"),
            Column("p99 of the first", "p99_ratio", "{:.2f}"),
            *COST_COLUMNS,
        ),
        {1.0: goals("series >=100000, scrape_ms <=200, p99_ratio <=1.1")},
        once=True,
    )


SCRAPES = (
    _scenario("scrapes", Pace(32, burst_us=1000)),
    # each message wakes the loader twice, on the processor of who scrapes
    _scenario("scrapes-1", Pace(64, burst_us=0)),
)
