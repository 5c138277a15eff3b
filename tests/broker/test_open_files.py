"""Connections that the open files have no room for are refused in words and closed, not left waiting."""

import contextlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.open_files import FILES_BESIDE, fit_connections, too_few_files
from ringmq.cli.main import main
from ringmq.loadtest.load.running import RunningBroker


@pytest.mark.parametrize(
    ("wanted", "hard_limit", "fits"),
    [
        (65_536, -1, 65_536),
        (65_536, 65_536 + FILES_BESIDE, 65_536),
        (65_536, 65_536 + FILES_BESIDE - 1, 65_535),
        (65_536, 20_000, 15_904),
        (65_536, 1024, 512),
        (500, 1024, 500),
    ],
)
def test_connections_fit_into_open_files(wanted: int, hard_limit: int, fits: int) -> None:
    config, said = fit_connections(BrokerConfig(connections_max=wanted), hard_limit)
    assert config.connections_max == fits
    if fits == wanted:
        assert not said
    else:
        assert f"ringmqConnectionsMax = {wanted}" in said
        assert f"room for {fits} connections" in said
        assert str(wanted + FILES_BESIDE) in said


@pytest.mark.parametrize(("readers", "soft_least", "hard_least"), [(1, 68, 260), (16, 128, 320)])
def test_a_start_needs_open_files(readers: int, soft_least: int, hard_least: int) -> None:
    assert not too_few_files(readers, soft_least, hard_least)
    assert not too_few_files(readers, -1, -1)
    assert too_few_files(readers, soft_least - 1, hard_least) == (
        f"the limit of open files is {soft_least - 1}, a broker needs {soft_least} and one for each connection: "
        "raise it (ulimit -n, LimitNOFILE)"
    )
    assert too_few_files(readers, soft_least, hard_least - 1) == (
        f"the hard limit of open files is {hard_least - 1}, a broker needs {hard_least} and one for each connection: "
        "raise it (ulimit -Hn, LimitNOFILE)"
    )


@pytest.mark.parametrize("files", ["20:20", "40:1000", "96:96"])
def test_a_start_without_open_files_is_one_clear_line(tmp_path: Path, files: str) -> None:
    """With 96 it would start, and refuse writes once there are some 40 queues."""
    command = [
        "prlimit", f"--nofile={files}", sys.executable, "-m", "ringmq.cli.main", "broker", "--namesrv", "",
        "--store", str(tmp_path / "store"), "--port", "0",
    ]  # fmt: skip
    refused = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    said = f"limit of open files is {files.partition(':')[0]}"
    assert len([line for line in refused.stderr.splitlines() if said in line]) == 1
    assert not (tmp_path / "store").exists() or not [*(tmp_path / "store").iterdir()]


def test_a_start_counts_the_readers_that_many_cpus_get(tmp_path: Path) -> None:
    """64 CPUs have 16 readers where ringmqReaders is 0."""
    command = [
        "prlimit", "--nofile=100:1000", sys.executable, "-c",
        "import os; os.sched_getaffinity = lambda _: set(range(64)); from ringmq.cli.main import main; main()",
        "broker", "--namesrv", "", "--store", str(tmp_path / "store"), "--port", "0",
    ]  # fmt: skip
    refused = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "Error: the limit of open files is 100, a broker needs 128 and one for each connection: "
        "raise it (ulimit -n, LimitNOFILE)"
    ]


def test_connections_beyond_the_open_files_are_closed_at_once(tmp_path: Path) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is needed")
    settings = {"mappedFileSizeCommitLog": 16 << 20, "diskMaxUsedSpaceRatio": 95, "ringmqReaders": 1}
    limited = ("prlimit", "--nofile=600:600")
    with RunningBroker(tmp_path / "store", settings, prefix=limited) as broker, contextlib.ExitStack() as stack:
        assert "600 open files have room for 300 connections" in broker.log_tail()
        reloaded = CliRunner().invoke(main, ["config", "reload", "--store", str(tmp_path / "store"), "-o", "json"])
        assert "ringmqReaders" in reloaded.output, "it was compared"
        assert "ringmqConnectionsMax" not in reloaded.output, "what the start has lowered is no change"
        opened = [
            stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=60)) for _ in range(310)
        ]
        assert opened[-1].recv(1) == b""
        opened[0].setblocking(False)
        with pytest.raises(BlockingIOError):
            opened[0].recv(1)


def test_a_start_tells_what_matters_and_nothing_that_nobody_has_set(tmp_path: Path) -> None:
    """Too few files for the default of ringmqConnectionsMax are no news; a broker that no client finds is."""
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is needed")
    settings: dict[str, object] = {"mappedFileSizeCommitLog": 16 << 20, "diskMaxUsedSpaceRatio": 95}
    for name, given in (("default", {}), ("set", {"ringmqConnectionsMax": 65_536})):
        limited = ("prlimit", "--nofile=20000:20000")
        with RunningBroker(tmp_path / name, settings | given, prefix=limited, namesrv=None) as broker:
            lines = broker.log_tail().splitlines()
        assert any("ringmqConnectionsMax = 65536, but 20000 open files" in line for line in lines) == bool(given)
        assert any("no name server is set, so no client finds this broker" in line for line in lines)
        (recovered,) = [line for line in lines if "store recovered in" in line]
        assert not recovered.rstrip().endswith(":")
        assert "up to offset 0" in recovered
