"""`ringmq serve --slaves`: a group on one machine that starts, replicates, and ends as one."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.sources import read_config
from ringmq.cli.main import main
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_port
from tests.commands import run_ringmq
from tests.waiting import wait_until

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 131_072,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def ringmq(*arguments: str) -> str:
    done = run_ringmq(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(180)
def test_a_group_starts_replicates_and_ends_as_one(tmp_path: Path) -> None:
    store = tmp_path / "group" / "store"
    settings = {**SMALL, "brokerRole": "SYNC_MASTER", "metricsPromExporterPort": free_port()}
    with RunningBroker(store, settings, arguments=["--slaves", "2"]) as group:
        ringmq("produce", "Hello", "-m", "one", "-m", "two", "-n", group.namesrv)

        def brokers() -> list[dict[str, object]]:
            found = json.loads(ringmq("ha", "status", "-n", group.namesrv, "-o", "json"))
            assert isinstance(found, list)
            return found

        def is_replicated() -> bool:
            found = brokers()
            return len(found) == 3 and len({entry["appendOffset"] for entry in found}) == 1

        wait_until(is_replicated, "all three logs end at the same offset")
        found = brokers()
        assert [(entry["role"], entry["brokerId"]) for entry in found] == [("master", 0), ("slave", 1), ("slave", 2)]
        in_sync = "3 replicas in sync, 2 wanted"
        wait_until(lambda: in_sync in ringmq("ha", "status", "-n", group.namesrv), "the master has heard of it")
        os.kill(group.process.pid, signal.SIGINT)
        assert group.process.wait(60) == 0, group.log_tail()
    for home in (store, store.with_name("store-slave-1"), store.with_name("store-slave-2")):
        assert (home / "commitlog").is_dir()
        assert not (home / "abort").exists(), "a clean stop"


def test_a_group_whose_slave_cannot_start_ends_with_its_reason(tmp_path: Path) -> None:
    store = tmp_path / "group" / "store"
    store.parent.mkdir()
    store.with_name("store-slave-1").write_text("in the way")
    with pytest.raises(RuntimeError) as error:
        RunningBroker(store, SMALL, arguments=["--slaves", "1"])
    assert "store-slave-1" in str(error.value)
    assert "ended with status" in str(error.value)
    assert not (store / "abort").exists(), "the master was stopped cleanly"


def configuration_of(words: Sequence[str]) -> BrokerConfig:
    """What a broker makes of these arguments of `ringmq`."""
    given = dict(zip(words[1::2], words[2::2], strict=True))
    settings = [value for name, value in zip(words[1::2], words[2::2], strict=True) if name == "--set"]
    settings += [f"listenPort={given['--port']}"] if "--port" in given else []
    file = Path(given["-c"]) if "-c" in given else None
    return read_config(file, [*settings, f"storePathRootDir={given['--store']}"], os.environ)[0]


@pytest.mark.parametrize("place", ["file", "environment", "service manager", "--set", "--store"])
def test_a_groups_master_has_the_store_that_it_had_alone(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, conf = (tmp_path / "x").resolve(), tmp_path / "broker.conf"
    log = home / "log"
    lines = f"storePathCommitLog={log}\nmetricsPromExporterPort=5600\nhaListenPort=5601\nlistenPort=5610\n"
    conf.write_text(lines + (f"storePathRootDir={home}\n" if place == "file" else ""))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if place in ("environment", "service manager"):
        monkeypatch.setenv("STATE_DIRECTORY" if place == "service manager" else "RINGMQ_STORE_PATH_ROOT_DIR", str(home))
    given = {"--set": ["--set", f"storePathRootDir={home}"], "--store": ["--store", str(home)]}.get(place, [])
    started: list[tuple[Sequence[str], Sequence[Sequence[str]]]] = []

    def run_group(master: Sequence[str], slaves: Sequence[Sequence[str]]) -> int:
        started.append((master, slaves))
        return 0

    monkeypatch.setattr("ringmq.cli.serve_group.run_group", run_group)
    done = CliRunner().invoke(main, ["serve", "-c", str(conf), *given, "--slaves", "2"])
    assert done.exit_code == 0, done.output
    ((master, slaves),) = started
    told = configuration_of(master)
    assert (told.store_path_root_dir, told.store_path_commit_log) == (str(home), str(log))
    assert (told.listen_port, told.ha_listen_port, told.metrics_prom_exporter_port) == (5610, 5601, 5600)
    for number, words in enumerate(slaves, start=1):
        told = configuration_of(words)
        assert (told.store_path_root_dir, told.store_path_commit_log) == (f"{home}-slave-{number}", ""), "its own"
        assert (told.listen_port, told.ha_listen_port, told.metrics_prom_exporter_port) == (0, 0, 0), "any"


def test_a_group_whose_configuration_is_wrong_is_not_started(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPrt=1\n")
    done = CliRunner().invoke(main, ["serve", "-c", str(conf), "--slaves", "1"])
    assert done.exit_code == 78 and "nearest known name is listenPort" in done.output


def test_a_groups_name_server_has_its_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Sequence[str]] = []

    def run_group(master: Sequence[str], slaves: Sequence[Sequence[str]]) -> int:
        started.extend([master, *slaves])
        return 0

    monkeypatch.setattr("ringmq.cli.serve_group.run_group", run_group)
    conf = tmp_path / "namesrv.conf"
    conf.write_text("orderMessageEnable=true\n")
    given = ["--namesrv-config", str(conf), "--namesrv-set", "brokerAddresses=127.0.0.1"]
    done = CliRunner().invoke(main, ["serve", "--store", str(tmp_path / "s"), "--slaves", "1", *given])
    assert done.exit_code == 0, done.output
    master, slave = started
    assert all(word in master for word in given)
    assert not any(word.startswith("--namesrv") for word in slave)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("brokerAdresses=1", "did you mean brokerAddresses?"),
        ("brokerAddresses=host", "neither an address nor a network"),
        ("listenPort=1", "the name server of serve listens where --namesrv-port says"),
        ("bindAddress=::1", "the name server of serve listens where the broker's bindAddress says"),
    ],
)
def test_wrong_properties_of_the_name_server_are_refused(tmp_path: Path, assignment: str, words: str) -> None:
    done = CliRunner().invoke(main, ["serve", "--store", str(tmp_path / "s"), "--namesrv-set", assignment])
    assert (done.exit_code, words in done.output) == (78, True), done.output
