"""`ringmq config reload --server namesrv` beside a running name server."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.cli.main import main
from ringmq.loadtest.load.program import Program
from ringmq.loadtest.stock import free_port


@pytest.fixture
def conf(tmp_path: Path) -> Iterator[Path]:
    """The configuration of a name server that runs with it."""
    path = tmp_path / "namesrv.conf"
    path.write_text(f"listenPort={free_port()}\n")
    command = [sys.executable, "-m", "ringmq.namesrv.server", "-c", str(path)]
    with Program(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        yield path
        process.send_signal(signal.SIGTERM)


def reload(conf: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["config", "reload", "--server", "namesrv", "-c", str(conf), *more])


def test_each_key_is_reported(conf: Path) -> None:
    with conf.open("a") as file:
        file.write("orderMessageEnable=true\nringmqMaxConnections=77\n")
    done = reload(conf, "--set", "bindAddress=0.0.0.0")
    assert done.exit_code == 3, done.output
    assert "orderMessageEnable: false -> true: changed live" in done.output
    assert "ringmqMaxConnections: 20000 -> 77: changed live" in done.output
    assert "bindAddress: 127.0.0.1 -> 0.0.0.0: needs a restart" in done.output
    done = reload(conf)
    assert (done.exit_code, "the name server runs with this configuration" in done.output) == (0, True), done.output


def test_a_wrong_file_and_a_server_that_is_not_there_change_nothing(conf: Path) -> None:
    done = reload(conf, "--set", "orderMessageEnabled=true")
    assert done.exit_code == 1 and "orderMessageEnable?; nothing was changed" in done.output
    done = reload(conf, "--set", "listenPort=1")
    assert done.exit_code == 1 and "the name server on 127.0.0.1:1 rejected the changes" in done.output
    assert "a changed listenPort, bindAddress or kvConfigPath needs a restart" in done.output


def test_another_name_server_on_the_new_port_is_left_alone(conf: Path) -> None:
    done = reload(conf, "--set", "kvConfigPath=/ours/kvConfig.json", "--set", "orderMessageEnable=true")
    assert done.exit_code == 1, done.output
    assert "another one: its kvConfigPath is (empty), not /ours/kvConfig.json; nothing was changed" in done.output
    assert "nothing to change" in reload(conf).output
