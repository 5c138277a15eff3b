"""The pytest plugin: `ringmq_broker` is a real broker for the session, `ringmq_topic` an empty topic for one test.

pytest loads this module in every run (entry point `ringmq`), so imports for the broker alone stay inside functions.
docs/testing.md describes the options.
"""

import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ringmq.testing.local_broker import LocalBroker

LOG_BYTES_MAX = 8000
_BROKER = pytest.StashKey["LocalBroker"]()
_LOG_SIZE = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, on the command line and in the configuration file."""
    group = parser.getgroup("ringmq", "a RingMQ broker for tests")
    group.addoption(
        "--ringmq-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the broker under ringmq_broker; repeatable",
    )
    group.addoption("--ringmq-namesrv", metavar="HOST:PORT", help="use the cluster there and start no broker")
    group.addoption("--ringmq-missing", choices=["error", "skip"], help="what tests do where no broker can run")
    parser.addini("ringmq_settings", "properties of the broker, one NAME=VALUE per line", type="linelist", default=[])
    parser.addini("ringmq_namesrv", "host:port of name servers to use instead of a broker of our own", default="")
    parser.addini("ringmq_missing", "error or skip: what tests do where no broker can run", default="error")


@pytest.fixture(scope="session")
def ringmq_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator["LocalBroker"]:
    """A RingMQ broker with its name server, started once for the session and stopped after it."""
    from ringmq.testing.local_broker import BrokerFailedError, BrokerMissingError, LocalBroker

    config = request.config
    namesrv = config.getoption("--ringmq-namesrv") or config.getini("ringmq_namesrv")
    if namesrv:
        broker = LocalBroker.at(namesrv)
    else:
        try:
            broker = LocalBroker.start(tmp_path_factory.mktemp("ringmq"), _settings(config))
        except BrokerMissingError as error:
            if _missing_rule(config) == "skip":
                pytest.skip(str(error))
            pytest.fail(f"{error}\n(`ringmq_missing = skip` skips such tests)", pytrace=False)
        except BrokerFailedError as error:
            pytest.fail(str(error), pytrace=False)
    config.stash[_BROKER] = broker
    yield broker
    del config.stash[_BROKER]
    broker.stop()


@pytest.fixture(scope="session")
def ringmq_namesrv(ringmq_broker: "LocalBroker") -> str:
    """The name server's host:port, the setting `namesrv` of producers and consumers."""
    return ringmq_broker.namesrv


@pytest.fixture
def ringmq_topic(ringmq_broker: "LocalBroker") -> str:
    """An empty topic of 4 queues that no other test uses."""
    topic = f"test_{uuid.uuid4().hex[:16]}"
    ringmq_broker.create_topic(topic)
    return topic


@pytest.fixture
def ringmq_group() -> str:
    """The name of a consumer or producer group that no other test uses."""
    return f"group_{uuid.uuid4().hex[:16]}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the end of the broker's log, for the report of a failure."""
    broker = item.config.stash.get(_BROKER, None)
    if broker is not None and broker.log_path is not None:
        item.stash[_LOG_SIZE] = broker.log_path.stat().st_size


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the broker's log lines of a failed test, and whether the broker still runs."""
    report = yield
    broker = item.config.stash.get(_BROKER, None)
    if broker is not None and report.failed and "ringmq_broker" in getattr(item, "fixturenames", ()):
        report.sections.append(("RingMQ broker", _said(broker, item.stash.get(_LOG_SIZE, 0))))
    return report


def _said(broker: "LocalBroker", since: int) -> str:
    lines = [f"name server {broker.namesrv}, broker {broker.address}"]
    if broker.exit_status is not None:
        lines.append(f"the broker is no longer running: status {broker.exit_status}")
    if broker.log_path is not None:
        text = broker.log_path.read_bytes()[since:][-LOG_BYTES_MAX:].decode(errors="replace").rstrip()
        lines.append(text or "it wrote nothing to its log during this test")
    return "\n".join(lines)


def _settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for text in [*config.getini("ringmq_settings"), *config.getoption("--ringmq-set")]:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise pytest.UsageError(f"ringmq settings: {text!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def _missing_rule(config: pytest.Config) -> str:
    rule = str(config.getoption("--ringmq-missing") or config.getini("ringmq_missing"))
    if rule not in ("error", "skip"):
        raise pytest.UsageError(f"ringmq_missing: {rule!r} is neither error nor skip")
    return rule
