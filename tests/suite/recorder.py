"""A plugin of pytest: records the outcomes of tests, seeds `random`, and ends tests that hang.

`--record FILE` writes the phases of all tests (`attempts.py`). `--only FILE` runs the tests that are named in it, one
name a line. `--seed N` seeds `random` for each test by N and the test's name, so a second run draws the same.
"""

import contextlib
import faulthandler
import json
import os
import random
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.suite.attempts import COLLECT, WORKER_ENDED, Phase
from tests.suite.processes import MARK, end, pids_marked, top_processes

HANG_FACTOR, HANG_EXTRA_S = 1.25, 30.0
"""pytest-timeout ends a test by a signal. A test that no signal reaches takes its worker along after this much more."""
SECTION_BYTES = 20_000
FIXTURE_ERRORS: dict[int, BaseException] = {}
"""Errors of setups by their ids, kept so that no other error gets the same id."""
LOG = os.fdopen(os.dup(2), "w")
"""Standard error as it is before pytest captures it: stacks of a worker that ends go there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption("--record", metavar="FILE", help="write the outcomes of tests as JSON lines")
    group.addoption("--only", metavar="FILE", help="run the tests that are named in a file, one a line")
    group.addoption("--seed", type=int, default=1, help="seed of `random` for each test, beside its name")
    group.addoption("--stop-file", metavar="FILE", help="run no further test once this file exists")


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = f"{os.getpid()}/{worker}"
        if path := config.getoption("--record"):
            stop = config.getoption("--stop-file")
            config.pluginmanager.register(Recorder(Path(path), Path(stop) if stop else None), "recorder")
    else:  # the controller's mark is inherited
        os.environ[MARK] = f"{os.environ.get(MARK, '').partition('/')[0]}/{worker}"


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('--seed')}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if path := config.getoption("--only"):
        names = set(Path(path).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
        items[:] = [item for item in items if item.nodeid in names]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(f"{item.config.getoption('--seed')} {item.nodeid}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that hangs where no signal reaches it ends its worker. The stacks of all threads are in the log."""
    guard(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        stop = item.config.getoption("--stop-file")
        if stop and Path(stop).exists():
            item.session.shouldstop = "another test has failed"


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """A failure takes both guards away, pytest-timeout's and this one. The teardown needs one, too."""
    if isinstance(node, pytest.Item):
        guard(node)


def guard(item: pytest.Item) -> None:
    """End this worker if the test does not end in time."""
    limit_s = timeout_s(item)
    if hasattr(item.config, "workerinput") and limit_s:
        faulthandler.dump_traceback_later(limit_s * HANG_FACTOR + HANG_EXTRA_S, exit=True, file=LOG)


def timeout_s(item: pytest.Item) -> float:
    """The limit of a test for pytest-timeout; 0 for none."""
    marker = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout", None)
    if marker is not None:
        given = marker.args[0] if marker.args else marker.kwargs.get("timeout")
    elif given is None:
        with contextlib.suppress(ValueError):  # without pytest-timeout
            given = item.config.getini("timeout")
    return float(given or 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure what only the worker knows at that moment."""
    report = yield
    if report.failed:
        report.load = os.getloadavg()
        report.processes = top_processes()
        if call.excinfo is not None and report.when == "setup":  # pytest raises a fixture's error again as one object
            FIXTURE_ERRORS[id(call.excinfo.value)] = call.excinfo.value
            report.cause = f"{os.environ[MARK]} {id(call.excinfo.value)}"
    return report


class Recorder:
    """Writes the reports that reach the process in which pytest was started."""

    def __init__(self, path: Path, stop_file: Path | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", buffering=1)
        self._stop_file = stop_file
        self._collected: set[str] = set()
        self._started_s: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._started_s[nodeid] = time.time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "???":  # xdist's report of a test whose worker has ended
            report.when = WORKER_ENDED
            report.start, report.stop = self._started_s.get(report.nodeid, time.time()), time.time()
            report.load, report.processes = os.getloadavg(), top_processes()
        node = getattr(report, "node", None)
        self._file.write(as_phase(report, node.gateway.id if node else "main").as_line())
        if report.failed and self._stop_file is not None:
            self._stop_file.touch()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            output = report.longreprtext
            self._file.write(Phase(report.nodeid, COLLECT, report.outcome, output=output).as_line())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collect(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """A worker that ended by a fault cannot end the servers that it started."""
        if error:
            self._file.write(json.dumps({"died": node.gateway.id, "error": str(error)}) + "\n")
            end(pids_marked(f"{os.getpid()}/{node.gateway.id}"))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._file.write(json.dumps({"end": int(exitstatus)}) + "\n")

    def _collect(self, ids: Iterable[str]) -> None:
        new = [test for test in ids if test not in self._collected]
        self._collected.update(new)
        self._file.write(json.dumps({"collected": new}) + "\n")


def as_phase(report: pytest.TestReport, worker: str) -> Phase:
    """Return a report of pytest as a phase."""
    sections = [] if report.passed else [report.longreprtext]
    if report.failed or report.when == "call":
        sections += [f"-- {title}\n{text[-SECTION_BYTES:]}" for title, text in report.sections if text.strip()]
    return Phase(
        test=report.nodeid,
        when=str(report.when),
        outcome=report.outcome,
        worker=worker,
        start_s=report.start,
        stop_s=report.stop,
        output="\n".join(sections),
        cause=getattr(report, "cause", ""),
        load=tuple(getattr(report, "load", ())),
        processes=tuple(getattr(report, "processes", ())),
    )
