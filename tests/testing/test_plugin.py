"""The pytest plugin: tests of a program run against a real broker, and runs without one pay nothing."""

import importlib.metadata
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.client import ConsumeFrom, Message
from ringmq.client.blocking import Consumer, Producer
from ringmq.client.connections.connection import split_address
from ringmq.ipc.segment import SHM_DIR, plane_name
from ringmq.loadtest.load.program import BY_EXEC
from ringmq.testing import local_broker
from ringmq.testing.local_broker import BrokerFailedError, LocalBroker
from tests.patient_clients import patient_clients  # noqa: F401

pytest_plugins = "pytester"
PLUGIN = ("-p", "ringmq.testing.plugin", "-p", "no:faulthandler")
"""faulthandler would put back the signal handlers from before the guard of SIGBUS when such a run ends."""
PROGRAM = """
    import asyncio
    import pathlib
    import pytest
    from ringmq.client import ConsumeFrom, Consumer, Message, Producer
    from ringmq.client import blocking

    def take(topic, namesrv, group, count):
        with blocking.Consumer(topic, namesrv, group, consume_from=ConsumeFrom.FIRST) as consumer:
            found = []
            while len(found) < count:
                found += consumer.poll(timeout_ms=60_000)
            return sorted(bytes(message.body) for message in found)

    @pytest.mark.parametrize("word", [b"one", b"two"])
    def test_blocking(ringmq_namesrv, ringmq_topic, ringmq_group, word):
        with blocking.Producer(ringmq_namesrv) as producer:
            assert len(producer.queues(ringmq_topic)) == 4
            producer.send(Message(ringmq_topic, word))
        assert take(ringmq_topic, ringmq_namesrv, ringmq_group, 1) == [word]

    def test_topics_can_be_made(ringmq_broker):
        ringmq_broker.create_topic("orders", queues=3)
        with blocking.Producer(ringmq_broker.namesrv) as producer:
            assert len(producer.queues("orders")) == 3

    @pytest.mark.asyncio
    async def test_asyncio(ringmq_broker):
        ringmq_broker.create_topic("made_on_a_running_loop")
        async with Producer(ringmq_broker.namesrv) as producer:
            result = await producer.send(Message("made_on_a_running_loop", b"x"))
        assert result.queue_offset == 0

    def test_settings(ringmq_broker):
        log = ringmq_broker.log_path.parent / "store"
        assert [path.stat().st_size for path in (log / "commitlog").iterdir()][0] == 8 << 20
        pathlib.Path("addresses").write_text(f"{ringmq_broker.address} {ringmq_broker.namesrv} {log}")

    def test_that_fails(ringmq_broker):
        with ringmq_broker.log_path.open("a") as log:
            log.write("the word of the broker\\n")
        assert False
"""


@pytest.fixture(autouse=True)
def only_this_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture(params=["", "1"], ids=["from an image", "by exec"])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers start in both ways."""
    if request.param:
        monkeypatch.setenv(BY_EXEC, request.param)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A cluster that runs anyway."""
    running = LocalBroker.start(tmp_path_factory.mktemp("running"))
    yield running
    running.stop()


@pytest.mark.usefixtures("start")
def test_a_session_has_one_broker_and_leaves_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROGRAM)
    pytester.makeini(
        """
        [pytest]
        asyncio_default_fixture_loop_scope = function
        ringmq_settings =
            mappedFileSizeCommitLog=16777216
            fileReservedTime = 5
        """
    )
    setting = ("--ringmq-set", "mappedFileSizeCommitLog=8388608")
    result = pytester.runpytest_inprocess(*PLUGIN, "-p", "pytest_asyncio.plugin", *setting)
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*RingMQ broker*", "name server 127.0.0.1:*", "the word of the broker"])
    address, _, store = (pytester.path / "addresses").read_text().split()
    assert not list(SHM_DIR.glob(plane_name(Path(store)) + "*"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(split_address(address), timeout=5)


@pytest.mark.usefixtures("start")
def test_a_killed_broker_keeps_its_messages(tmp_path: Path) -> None:
    broker = LocalBroker.start(tmp_path)
    try:
        with Producer(broker.namesrv) as producer:
            producer.send(Message("Orders", b"order 1"))
        broker.kill()
        assert broker.exit_status == -signal.SIGKILL
        broker = LocalBroker.start(tmp_path)
        with Consumer("Orders", broker.namesrv, "readers", consume_from=ConsumeFrom.FIRST) as consumer:
            assert [bytes(message.body) for message in consumer.poll(timeout_ms=60_000)] == [b"order 1"]
        broker.stop()
    finally:
        if broker.exit_status is None:
            broker.kill()


def test_a_cluster_that_was_not_started_here_is_not_killed(broker: LocalBroker) -> None:
    with pytest.raises(BrokerFailedError, match="was not started here"):
        LocalBroker.at(broker.namesrv).kill()


def test_a_cluster_that_runs_anyway_is_used(pytester: pytest.Pytester, broker: LocalBroker) -> None:
    pytester.makepyfile(
        """
        def test_it(ringmq_broker, ringmq_topic, ringmq_namesrv):
            assert ringmq_broker.log_path is None and ringmq_broker.exit_status is None
            print(f"used {ringmq_broker.address} through {ringmq_namesrv}")
            assert not ringmq_topic
        """
    )
    result = pytester.runpytest_inprocess(*PLUGIN, "--ringmq-namesrv", broker.namesrv)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"used {broker.address} through {broker.namesrv}"])
    assert broker.exit_status is None


@pytest.mark.parametrize(("arguments", "outcome"), [((), "errors"), (("--ringmq-missing", "skip"), "skipped")])
def test_what_is_missing_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], outcome: str
) -> None:
    monkeypatch.setattr(local_broker, "NEEDED", ("json", "no_such_module"))
    pytester.makepyfile("def test_it(ringmq_topic): pass")
    result = pytester.runpytest_inprocess(*PLUGIN, "-rsE", *arguments)
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(["*a RingMQ broker needs no_such_module; install ringmq[[]broker]: `pip install*"])


@pytest.mark.usefixtures("start")
@pytest.mark.parametrize("setting", ["noSuchProperty=1", "mappedFileSizeCommitLog=-1"])
def test_a_broker_that_does_not_start_says_why(pytester: pytest.Pytester, setting: str) -> None:
    pytester.makepyfile("def test_it(ringmq_broker): pass")
    result = pytester.runpytest_inprocess(*PLUGIN, "--ringmq-set", setting)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{setting.partition('=')[0]}*"])


def test_a_setting_without_a_value_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(ringmq_broker): pass")
    result = pytester.runpytest_inprocess(*PLUGIN, "--ringmq-set", "brokerName")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*'brokerName' is not NAME=VALUE*"])


def test_a_run_without_a_broker_loads_nothing_of_it() -> None:
    program = (
        "import pytest, _pytest.config, sys\n"
        "before = set(sys.modules)\n"
        "import ringmq.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert {name for name in done.stdout.split() if name != "uuid"} <= {
        "ringmq", "ringmq.testing", "ringmq.testing.plugin", "_uuid", "platform",
    }  # fmt: skip


def test_pytest_finds_the_plugin() -> None:
    names = {point.name: point.value for point in importlib.metadata.entry_points(group="pytest11")}
    assert names["ringmq"] == "ringmq.testing.plugin"
