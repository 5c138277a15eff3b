"""Comparison with stock RocketMQ 5.3.3: its client, its mqadmin and its servers.

`--judge-stock` runs the same tests against a stock broker as well, which proves the tests.
`--record-stock` (with it) writes the recorded mqadmin output again.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.pops import serves_pop
from ringmq.native import lib
from tests.conformance import servers
from tests.conformance.cases import DEFAULT, ONE_SECOND_LEVELS, Case, RunningCases, selected
from tests.conformance.stock_client import StockClient
from tests.patient_clients import patient_clients  # noqa: F401
from tests.server_pool import ServerPool

HERE = Path(__file__).parent
STAGES: list[tuple[str, float]] = []
# The second client differs in all that a setting can change on the wire: binary header, send code 10, port - 2.
CLIENTS = {
    "json": ("-Drocketmq.serialize.type=JSON",),
    "binary": (
        "-Drocketmq.serialize.type=ROCKETMQ",
        "-Dorg.apache.rocketmq.client.sendSmartMsg=false",
        "-Dcom.rocketmq.sendMessageWithVIPChannel=true",
    ),
}

SHORT_TIMES = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "enablePropertyFilter": True,
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 1000,
    "transactionOpBatchInterval": 100,
    "enablePopMessageThreshold": True,
    "popInflightMessageThreshold": 20,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--judge-stock", action="store_true", help="run the conformance tests against stock as well")
    parser.addoption("--judge-stock-only", action="store_true", help="and not against RingMQ")
    parser.addoption("--record-stock", action="store_true", help="write the recorded stock output again")


def kinds(config: pytest.Config) -> list[str]:
    """Return the kinds of server under test."""
    if config.getoption("--judge-stock-only", default=False):
        return ["stock"]
    return ["ringmq", "stock"] if config.getoption("--judge-stock", default=False) else ["ringmq"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", kinds(metafunc.config), scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.stock)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)} (`make test` installs)"))


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time a stage for the summary."""
    since = time.monotonic()
    yield
    STAGES.append((name, time.monotonic() - since))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "conformance/" in report.nodeid and report.duration > 0.1:
        STAGES.append((report.nodeid.split("/")[-1], report.duration))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if STAGES:
        terminalreporter.section("conformance stages")
        for name, seconds in STAGES:
            terminalreporter.write_line(f"{seconds:7.2f} s  {name}")


@pytest.fixture(scope="session")
def stock_clients(shared_servers: ServerPool) -> Callable[[str], StockClient]:
    """The stock clients by name (see CLIENTS), started when first asked for."""
    return lambda client: shared_servers.stock_client(client, CLIENTS[client])


@pytest.fixture(scope="module")
def stock_client(stock_clients: Callable[[str], StockClient]) -> StockClient:
    """The stock client with its default settings."""
    return stock_clients("json")


@pytest.fixture(scope="module")
def started(shared_servers: ServerPool) -> Iterator[Callable[..., servers.Server]]:
    """Start a server of a kind; all are stopped at the end of the module, because an idle stock broker takes a third of
    a CPU."""
    running: list[servers.Server] = []

    def start(kind: str, name: str, **options: object) -> servers.Server:
        running.append(shared_servers.start(kind, name, **options))
        return running[-1]

    yield start
    STAGES.extend(shared_servers.stages)
    shared_servers.stages.clear()
    for server in running:
        server.close()


@pytest.fixture
def server(kind: str, shared_servers: ServerPool) -> servers.Server:
    """The shared server of the kind under test."""
    return shared_servers(kind)


@pytest.fixture(scope="module")
def pops(kind: str, shared_servers: ServerPool) -> Iterator[None]:
    """Skip a test of POP against a RingMQ that was built without it.

    A client that tries again would hide the death of the worker `pop`, so that is looked for at the end of a file."""
    if kind == "ringmq" and not serves_pop():
        pytest.skip("brokers of this tree do not serve POP")
    yield
    if kind == "ringmq":
        assert Plane.open(plane_name(shared_servers(kind).store)).role(lib.RMQ_ROLE_POP).deaths == 0


@pytest.fixture(scope="session")
def running_cases(
    kind: str,
    shared_servers: ServerPool,
    stock_clients: Callable[[str], StockClient],
    request: pytest.FixtureRequest,
) -> Iterator[RunningCases]:
    """The cases that this run has selected."""
    cases = selected(request.session.items, is_pop_served=kind == "stock" or serves_pop())
    namesrvs = {DEFAULT: shared_servers(kind).namesrv}
    if any(each.server == ONE_SECOND_LEVELS for each in cases):
        namesrvs[ONE_SECOND_LEVELS] = request.getfixturevalue("one_second_levels").namesrv
    running = RunningCases(cases, stock_clients("json"), namesrvs)
    yield running
    running.close()


@pytest.fixture
def seen(case: Case, running_cases: RunningCases) -> Any:
    """What the stock client saw in the case of a test, which takes the fixture `pops` first."""
    return running_cases.result(case)


@pytest.fixture(scope="session")
def one_second_levels(kind: str, shared_servers: ServerPool) -> servers.Server:
    """A server whose delay levels are a second each, that checks halves after two, serves SQL92, and gives nothing of a
    queue with more than 20 open messages."""
    settings = {**servers.SMALL_FILES, **SHORT_TIMES}
    return shared_servers.own(kind, "one-second-levels", settings=settings)
