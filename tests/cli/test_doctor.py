"""`ringmq doctor` and `ringmq debug bundle` beside a running broker."""

import json
import resource
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.cli.main import main
from ringmq.loadtest.load.running import RunningBroker

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
GIVEN = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker of ours with its name server."""
    with RunningBroker(tmp_path_factory.mktemp("doctor") / "store", SMALL) as running:
        yield running


def doctor(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["doctor", "--no-disk-trial", *map(str, arguments)])


def test_a_running_brokers_ports_and_store_are_well(broker: RunningBroker) -> None:
    port = broker.port
    done = doctor("--store", broker.store, *GIVEN, "--set", f"listenPort={port}", "-o", "json")
    findings = {(row["area"], row["name"]): row for row in json.loads(done.stdout)}
    assert findings["network", "listenPort"]["level"] == "ok"
    assert "in use by the broker" in findings["network", "listenPort"]["meaning"]
    assert findings["network", "listenPort"]["value"] == f"127.0.0.1:{port} listens (process {broker.process.pid})"
    assert "already in use" not in findings["network", "listenPort - 2 (VIP)"]["value"]
    assert findings["store", "owner"]["value"] == "a live broker has it open"
    assert findings["store", "format"]["value"].startswith("1 ")
    assert done.exit_code == any(row["level"] == "fail" for row in findings.values())


def test_limits_are_those_of_the_broker_that_runs(broker: RunningBroker, tmp_path: Path) -> None:
    before = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (4321, before[1]))
    try:
        values = []
        for store in (broker.store, tmp_path):
            done = doctor("--store", store, *GIVEN, "--set", "listenPort=0", "-o", "json")
            values += [row["value"] for row in json.loads(done.stdout) if row["name"] == "open files"]
    finally:
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, before)
    assert "(soft limit 4321)" in values[0] and f"of the running broker ({broker.process.pid})" in values[0]
    assert "4321" not in values[1] and "running broker" not in values[1]


def test_another_store_on_the_same_port_is_told_who_has_it(broker: RunningBroker, tmp_path: Path) -> None:
    done = doctor("--store", tmp_path, "--set", f"listenPort={broker.port}")
    assert done.exit_code == 1
    assert "FAIL  listenPort" in done.output
    assert "stop the process that has it" in done.output


def test_a_port_that_another_process_has_is_not_taken_for_the_running_brokers(broker: RunningBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = doctor("--store", broker.store, *GIVEN, "--set", f"listenPort={port}", "-o", "json")
    found = next(row for row in json.loads(done.stdout) if row["name"] == "listenPort")
    assert found["level"] == "warn"
    assert "not by the broker of this store" in found["meaning"]


def test_a_machine_that_is_well_has_exit_status_0_and_a_bad_option_is_named(tmp_path: Path) -> None:
    done = doctor("--store", tmp_path / "new", "--set", "listenPort=0", "--set", "mappedFileSizeCommitLog=65536")
    assert "to correct" in done.output.splitlines()[-1]
    assert done.exit_code == (0 if done.output.splitlines()[-1].startswith("0 ") else 1)
    refused = doctor("--set", "listenPort=x")
    assert refused.exit_code == 1
    assert "0..65535" in refused.output
    assert not (tmp_path / "new").exists()


def test_a_bundle_of_a_running_broker_has_its_words_and_workers(broker: RunningBroker, tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    done = CliRunner().invoke(main, [
        *("debug", "bundle", "--no-disk-trial", "--store", str(broker.store), *GIVEN),
        *("--set", f"listenPort={broker.port}"),
        "--log", str(broker.log_path), "--to", str(target), "-o", "json",
    ])  # fmt: skip
    assert done.exit_code == 0, done.output
    names = {row["name"] for row in json.loads(done.stdout)["entries"]}
    with tarfile.open(target) as archive:
        assert {f"b/{name}" for name in names} | {"b/MANIFEST.json"} == set(archive.getnames())
        runtime = json.load(archive.extractfile("b/runtime.json"))  # type: ignore[arg-type]
        marks = json.load(archive.extractfile("b/store/watermarks.json"))  # type: ignore[arg-type]
        settings = archive.extractfile("b/config.properties").read().decode()  # type: ignore[union-attr]
    assert "brokerVersionDesc" in runtime["table"]
    assert marks["live"] is True
    assert f"storePathRootDir={broker.store.resolve()}\t# " in settings
    workers = {name.split("/")[1] for name in names if name.startswith("processes/")}
    assert len(workers) >= 6 and str(marks["owner_pid"]) in workers
    again = CliRunner().invoke(
        main, ["debug", "bundle", "--no-disk-trial", "--store", str(tmp_path), "--to", str(target)]
    )
    assert again.exit_code == 1
    assert str(target) in again.output


def test_a_bundle_that_could_not_be_written_is_refused_before_the_machine_is_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the machine is examined")

    monkeypatch.setattr("ringmq.cli.debug.examine", begun)
    absent, folder = tmp_path / "absent.log", tmp_path / "no folder"
    for words, named in ((["--log", str(absent)], absent), (["--to", str(folder / "b.tar.gz")], folder)):
        done = CliRunner().invoke(main, ["debug", "bundle", "--store", str(tmp_path / "store"), *words])
        assert done.exit_code == 1 and f"{named}: No such file or directory" in done.output


@pytest.mark.parametrize("journalctl", ['#!/bin/sh\necho "$@"\necho accessKey=AK\n', None])
def test_a_bundle_has_the_journal_of_a_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journalctl: str | None
) -> None:
    if journalctl is not None:
        (tmp_path / "journalctl").write_text(journalctl)
        (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    target = tmp_path / "b.tar.gz"
    words = ["--no-disk-trial", "--store", str(tmp_path / "store"), "--set", "listenPort=0"]
    done = CliRunner().invoke(main, ["debug", "bundle", *words, "--unit", "ringmq-broker@x", "--to", str(target)])
    assert done.exit_code == 0, done.output
    with tarfile.open(target) as archive:
        text = archive.extractfile("b/log/journal.txt").read().decode()  # type: ignore[union-attr]
    if journalctl is None:
        assert "No such file" in text, "it says why there is none"
    else:
        assert text.splitlines() == ["--no-pager -u ringmq-broker@x -n 5000", "accessKey=(hidden)"]


def test_the_open_doors_of_a_name_server_of_its_own_are_named(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("bindAddress=0.0.0.0\nlistenPort=19876\nbrokerAddresses=10.0.0.0/8\n")
    given = ("--store", tmp_path / "new", "--set", "listenPort=0", "--namesrv-config", file)
    rows = {row["name"]: row for row in json.loads(doctor(*given, "-o", "json").stdout) if row["area"] == "doors"}
    assert rows["adminAddresses of 0.0.0.0:19876"]["level"] == "warn"
    assert "set adminAddresses" in rows["adminAddresses of 0.0.0.0:19876"]["advice"]
    assert rows["brokerAddresses of 0.0.0.0:19876"]["level"] == "ok"
    headings = [line for line in doctor(*given).output.splitlines() if line.strip() == "doors"]
    assert len(headings) == 1
    file.write_text("bindAdress=0.0.0.0\n")
    refused = doctor(*given)
    assert refused.exit_code == 1
    assert "did you mean bindAddress?" in refused.output
