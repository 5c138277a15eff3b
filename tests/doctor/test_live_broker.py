"""The doctor beside a running broker: its ports and file sizes are the broker's, and no failures."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.doctor.check_environment import check_ports
from ringmq.doctor.finding import OK, WARN
from ringmq.doctor.gather_network import gather_broker, gather_ports
from ringmq.doctor.gather_store import running_broker
from ringmq.loadtest.load.running import RunningBroker
from tests.commands import run_ringmq

SETTINGS = {"mappedFileSizeCommitLog": 1 << 22, "mappedFileSizeConsumeQueue": 60_000}
LOCK_AND_LISTEN = """
import fcntl, socket, sys
file = open(sys.argv[1], "wb")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
input()
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("doctor") / "store", SETTINGS) as running:
        yield running


def test_the_ports_of_the_running_broker_are_its_own(broker: RunningBroker) -> None:
    facts = gather_broker(running_broker(broker.store))
    assert facts is not None and facts.pid == broker.process.pid
    assert {broker.address, broker.namesrv} <= set(facts.listeners)
    with socket.create_server(("127.0.0.1", 0)) as other:
        wanted = [("listenPort", broker.host, broker.port), ("--namesrv-port", broker.host, broker.namesrv_port)]
        ports = gather_ports([*wanted, ("haListenPort", *other.getsockname())])
        listening, *own, foreign = check_ports(ports, is_running=True, broker=facts)
    assert broker.address in listening.value
    assert [finding.level for finding in own] == [OK, OK]
    assert all(f"listens (process {broker.process.pid})" in finding.value for finding in own)
    assert (foreign.level, "not by the broker of this store" in foreign.meaning) == (WARN, True)


@pytest.mark.parametrize("is_configured", [True, False])
def test_the_command_finds_no_failure_in_network_and_store(broker: RunningBroker, is_configured: bool) -> None:
    settings = {**SETTINGS, "listenPort": broker.port} if is_configured else {}
    words = ["doctor", "--store", str(broker.store), "--no-disk-trial"]
    words += [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    done = run_ringmq(*words, "--output", "json")
    found = {each["name"]: each for each in json.loads(done.stdout) if each["area"] in ("network", "store")}
    assert broker.address in found["broker listens on"]["value"]
    assert [name for name, each in found.items() if each["level"] == "fail"] == []
    if is_configured:
        assert found["listenPort"]["value"] == f"{broker.address} listens (process {broker.process.pid})"
        assert "files" not in found
    else:
        assert found["files"]["level"] == WARN
        assert "mappedFileSizeCommitLog=4194304" in found["files"]["value"]


def test_a_stock_broker_is_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCK_AND_LISTEN, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stock:
        assert stock.stdout is not None
        address = f"127.0.0.1:{stock.stdout.readline().strip()}"
        assert running_broker(tmp_path) == stock.pid
        facts = gather_broker(stock.pid)
        stock.communicate("\n")
    assert facts is not None and facts.listeners == (address,)
    assert running_broker(tmp_path) == 0
    assert gather_broker(0) is None


def test_a_socket_that_another_process_keeps_is_still_the_brokers() -> None:
    """As systemd keeps those of a service over restarts."""
    with socket.create_server(("127.0.0.1", 0)) as kept:
        command = [sys.executable, "-c", "print(flush=True); input()"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=(kept.fileno(),)
        ) as service:
            assert service.stdout is not None
            service.stdout.readline()
            facts = gather_broker(service.pid)
            service.communicate("\n")
        assert facts is not None and facts.listeners == (f"127.0.0.1:{kept.getsockname()[1]}",)
