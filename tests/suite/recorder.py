"""A plugin of pytest: writes what each test did, seeds what is random, and ends what a dead worker left.

`--record FILE` writes the phases of all tests (`attempts.py`). `--only FILE` runs the tests that are named in it, one
name a line. `--seed N` seeds `random` for each test by N and the test's name, so a second run draws the same.
"""

import faulthandler
import json
import os
import random
import sys
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.suite.attempts import Phase
from tests.suite.processes import MARK, end, pids_marked, top_processes

HANG_FACTOR, HANG_EXTRA_S = 1.25, 30.0
"""pytest-timeout ends a test by a signal. A test that no signal reaches takes its worker along after this much more."""
SECTION_BYTES = 20_000
WORKER_ENDED = "its worker ended"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption("--record", metavar="FILE", help="write what each test did as JSON lines")
    group.addoption("--only", metavar="FILE", help="run the tests that are named in a file, one a line")
    group.addoption("--seed", type=int, default=1, help="seed of `random` for each test, beside its name")


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = f"{os.getpid()}/{worker}"
        if path := config.getoption("--record"):
            config.pluginmanager.register(Recorder(Path(path)), "recorder")
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
    """A test that hangs where no signal reaches it ends its worker, with the stacks of all threads in the log."""
    limit_s = timeout_s(item)
    if not hasattr(item.config, "workerinput") or not limit_s:
        return (yield)
    faulthandler.dump_traceback_later(limit_s * HANG_FACTOR + HANG_EXTRA_S, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def timeout_s(item: pytest.Item) -> float:
    """The limit of a test for pytest-timeout; 0 for none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs.get("timeout", 0))
    return float(item.config.getini("timeout") or 0) if item.config.pluginmanager.hasplugin("timeout") else 0.0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What only the worker knows at the moment of a failure goes along with the report."""
    report = yield
    if report.failed:
        report.load = os.getloadavg()
        report.processes = top_processes()
        if call.excinfo is not None and report.when == "setup":  # a fixture's error is raised again as the same object
            report.cause = f"{os.environ[MARK]} {id(call.excinfo.value)} {call.excinfo.typename}"
    return report


class Recorder:
    """Writes the reports that reach the process in which pytest was started."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", buffering=1)
        self._collected: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node = getattr(report, "node", None)
        self._file.write(as_phase(report, node.gateway.id if node else "main").as_line())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collect(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """A worker that ended by a fault cannot end the servers that it started."""
        if error:
            end(pids_marked(f"{os.getpid()}/{node.gateway.id}"))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._file.write(f'{{"end": {int(exitstatus)}}}\n')

    def _collect(self, ids: Iterable[str]) -> None:
        new = [test for test in ids if test not in self._collected]
        self._collected.update(new)
        self._file.write(json.dumps({"collected": new}) + "\n")


def as_phase(report: pytest.TestReport, worker: str) -> Phase:
    """A report of pytest as a phase. A worker that crashed has made no report, so its times are unknown."""
    now_s = time.time()
    sections = [report.longreprtext] if report.failed or report.skipped else []
    if report.failed or report.when == "call":
        sections += [f"-- {title}\n{text[-SECTION_BYTES:]}" for title, text in report.sections if text.strip()]
    return Phase(
        test=report.nodeid,
        when=WORKER_ENDED if report.when == "???" else str(report.when),
        outcome=report.outcome,
        worker=worker,
        start_s=getattr(report, "start", now_s),
        stop_s=getattr(report, "stop", now_s),
        output="\n".join(sections) if report.failed else "\n".join(sections)[-SECTION_BYTES:],
        cause=getattr(report, "cause", ""),
        load=tuple(getattr(report, "load", ())) or (os.getloadavg() if report.failed else ()),
        processes=tuple(getattr(report, "processes", ())),
    )
