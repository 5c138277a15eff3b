"""What keeps a broker from starting is one line that names what, where and what to do, and leaves nothing behind."""

import contextlib
import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.broker import plane_setup, queue_ends, server
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.server import ServeOptions, StartError, serve
from ringmq.cli.main import main
from ringmq.ipc.exit_status import EXIT_BAD_CONFIG, EXIT_CLEAN, EXIT_STORE_REFUSED, EXIT_UNCLEAN_STOP
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import SHM_DIR, plane_name
from ringmq.ipc.watermark import read_watermarks, store_is_locked
from ringmq.ipc.workers import WORKERS
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock.ports import free_port
from ringmq.native import lib
from ringmq.pop.take_over import is_of_another_broker
from ringmq.store import markers
from ringmq.store.queue_ends import write_queue_ends
from ringmq.store.store_lock import byte_0_lock
from tests.archives import extract_all
from tests.broker.exporter_kit import value
from tests.store.advice_kit import command_in

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "listenPort": "0",
}
SMALL_OTHERS = ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")


def refused(store: Path, settings: dict[str, str] | None = None, status: int = 1) -> str:
    """Start a broker that cannot start; the message. No shared memory may be left."""
    config = changed(BrokerConfig(), {**SMALL, "storePathRootDir": str(store), **(settings or {})})
    with pytest.raises(StartError) as caught:
        serve(ServeOptions(config))
    assert caught.value.status == status
    if store.is_dir():
        assert not list(SHM_DIR.glob(f"{plane_name(store)}-*"))
    return str(caught.value)


def test_the_command_line_makes_one_line_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    few = ["--set", "ringmqConnectionsMax=100"]  # a machine with few open files has a line for more
    result = CliRunner().invoke(main, ["serve", "--store", str(tmp_path / "file" / "store"), "--port", "0", *few])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ") and "--store" in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["broker", "--set", "listenPrt=1"], EXIT_BAD_CONFIG),
        (["broker", "--set", "listenPort=x"], EXIT_BAD_CONFIG),
        (["broker", "-c", "/nonexistent/broker.conf"], 2),
        (["namesrv", "--set", "listenPrt=1"], EXIT_BAD_CONFIG),
        (["namesrv", "-c", "/nonexistent/namesrv.conf"], EXIT_BAD_CONFIG),
    ],
)
def test_no_unit_starts_a_wrong_configuration_again(words: list[str], status: int) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == status, result.output
    units = list((Path(__file__).parents[2] / "systemd").glob("*.service"))
    kept = [re.search(r"^RestartPreventExitStatus=(.*)$", unit.read_text(), re.MULTILINE) for unit in units]
    assert units and all(found and str(status) in found[1].split() for found in kept)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "storePathRootDir" in refused(tmp_path / "file" / "store")


def test_files_of_another_size(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(5000))
    said = refused(tmp_path, status=EXIT_STORE_REFUSED)
    assert f"{0:020d} has 5000 bytes, not 1048576" in said
    sizes = " ".join(f"--set {name}={SMALL[name]}" for name in ("mappedFileSizeCommitLog", *SMALL_OTHERS))
    assert command_in(said) == f"ringmq store repair {tmp_path} {sizes}"  # no broker accepts a size of 5000


@pytest.mark.parametrize(
    "names", [["mappedFileSizeCommitLog"], ["mappedFileSizeConsumeQueue"], ["maxHashSlotNum", "maxIndexNum"]]
)
def test_a_store_of_other_sizes_names_the_settings_that_open_it(tmp_path: Path, names: list[str]) -> None:
    """A start with the printed options loads the store. Sizes that no file shows stay as configured."""
    with tarfile.open(GOLDEN / "store-basic" / "store-basic.tar.gz") as tar:
        extract_all(tar, tmp_path)
    settings = SMALL | {"storePathRootDir": str(tmp_path / "store-basic"), "mapperFileSizeBatchConsumeQueue": "4600"}
    other = settings | {name: str(2 * int(SMALL[name])) for name in names}
    with pytest.raises(StartError) as caught:
        server.recover_store(changed(BrokerConfig(), other), print, unknown_topics_from=None)
    assert caught.value.status == EXIT_STORE_REFUSED
    printed = re.findall(r"--set (\w+)=(\d+)", str(caught.value))
    assert printed == [(name, SMALL[name]) for name in names]
    config = changed(BrokerConfig(), other | dict(printed))
    assert server.recover_store(config, print, unknown_topics_from=None).append_offset > 0


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("topics.json", "{", "the text ends"),
        ("topics.json", "[1]", "no object"),
        ("topics.json", '{"topicConfigTable": [1]}', "topicConfigTable"),
        ("subscriptionGroup.json", '{"subscriptionGroupTable": 5}', "subscriptionGroupTable"),
        ("consumerOffset.json", "\0\0\0", ""),
    ],
)
def test_a_config_file_that_is_none_stops_the_start_and_stays(tmp_path: Path, file: str, text: str, words: str) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / file
    path.write_text(text)
    said = refused(tmp_path, status=EXIT_STORE_REFUSED)
    assert f"config/{file}: " in said and words in said and "repair it" in said
    assert command_in(said) == f"mv -- {path} {path}.damaged" and path.read_text() == text


def test_a_log_that_is_read_is_not_read_anew_after_a_failed_sync(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(bytes(1 << 20))
    markers.write_failed_marker(tmp_path, "fdatasync: EIO")
    with path.open("rb") as reader:
        fcntl.fcntl(reader, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_RDLCK))
        said = refused(tmp_path, status=EXIT_STORE_REFUSED)
    assert f"{path} is being read by another process: end the readers" in said
    assert "file sizes" not in said


def test_a_slave_announces_the_port_for_slaves_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock's does, too; with listenPort = 65535 there is no other."""
    given = free_port()
    seen: list[BrokerConfig] = []

    def recover(config: BrokerConfig, tell: Callable[[str], None], *, unknown_topics_from: int | None) -> None:
        seen.append(config)
        raise StartError("far enough")

    monkeypatch.setattr(server, "recover_store", recover)
    assert refused(tmp_path, {"brokerRole": "SLAVE", "brokerId": "1", "haListenPort": str(given)}) == "far enough"
    assert seen[0].ha_listen_port == given


def test_while_a_store_recovers_the_page_of_its_last_broker_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = Plane.create(
        plane_name(tmp_path), plane_setup.capacity_of(BrokerConfig(), WORKERS.rows(1)), tmp_path.stat(), 1
    )
    plane.publish_watermarks()
    seen = []

    def recover(_: BrokerConfig, tell: Callable[[str], None], *, unknown_topics_from: int | None) -> None:
        seen.append((store_is_locked(tmp_path), read_watermarks(tmp_path).live))
        raise StartError("far enough")

    monkeypatch.setattr(server, "recover_store", recover)
    assert refused(tmp_path) == "far enough"
    assert seen == [(True, False)]


def test_a_broken_config_file(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{ broken")
    said = refused(tmp_path, status=EXIT_STORE_REFUSED)
    assert "topics.json" in said and "repair" in said


@pytest.mark.parametrize("more", [[], ["--accept-unserved"]])
def test_what_waits_for_a_stock_broker_is_accepted_by_an_option(
    tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "consumequeue" / "%LMQ%a" / "0").mkdir(parents=True)

    def open_store(*_: object, **__: object) -> None:
        raise StartError("far enough")

    monkeypatch.setattr(server, "recover_store", open_store)
    settings = [word for item in SMALL.items() for word in ("--set", "=".join(item))]
    result = CliRunner().invoke(main, ["broker", "--store", str(tmp_path), *settings, *more])
    if more:
        assert (result.exit_code, result.output.splitlines()[-1]) == (1, "Error: far enough")
    else:
        assert result.exit_code == EXIT_STORE_REFUSED
        assert "1 light message queues" in result.output and "--accept-unserved" in result.output
        units = [Path(__file__).parents[2] / "systemd" / f"ringmq-{kind}@.service" for kind in ("broker", "slave")]
        for unit in units:  # else the log of a killed stock broker would be read ten times, or for ever
            assert re.search(rf"^RestartPreventExitStatus=.*\b{EXIT_STORE_REFUSED}\b", unit.read_text(), re.MULTILINE)


def test_no_room_for_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Plane:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(server.Plane, "create", full)
    said = refused(tmp_path)
    assert "No space left" in said and "/dev/shm" in said


def can_mount() -> bool:
    with contextlib.suppress(OSError):
        command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    return False


@pytest.mark.skipif(not can_mount(), reason="needs unshare and mount")
def test_a_full_shared_memory_folder_is_no_sigbus(tmp_path: Path) -> None:
    serving = f"{sys.executable} -m ringmq.cli.main serve --store {tmp_path}/store --port 0 --namesrv-port 0"
    script = f"mount -t tmpfs -o size=64k tmpfs /dev/shm && exec {serving} --set mappedFileSizeCommitLog=1048576"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "Error: /dev/shm has 6" in done.stderr and "shm-size" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_host_without_an_address_is_refused_before_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(server, "recover", None)
    assert "brokerIP1 = 'bad..name'" in refused(tmp_path / "a", {"brokerIP1": "bad..name"})
    monkeypatch.setattr(plane_setup.socket, "getaddrinfo", unknown)
    said = refused(tmp_path / "b", {"brokerIP1": "nowhere"})
    assert "brokerIP1 = 'nowhere'" in said and "not known" in said


def test_a_text_that_is_too_long_names_the_property(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_setup, "additions_of", lambda config: bytes(600))
    said = refused(tmp_path)
    assert "regionId" in said and "511" in said


def test_one_log_folder_for_python_and_c(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with RunningBroker(tmp_path / "store", {**SMALL, "storePathCommitLog": f" {log} "}) as broker:
        assert broker.stop() == 0
    assert (log / f"{0:020d}").exists()


def has_v6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_v6_loopback(), reason="this machine has no ::1")
def test_a_broker_on_an_ipv6_address_serves(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {**SMALL, "bindAddress": "::1"}) as broker:
        assert broker.host == "::1"
        with socket.create_connection(("::1", broker.port), timeout=30) as connection:
            assert connection.getpeername()[0] == "::1"
        assert broker.stop() == 0


def warned_properties(broker: RunningBroker) -> list[str]:
    return [line.rpartition(": set ")[2] for line in broker.log_tail(20_000).splitlines() if "listener " in line]


def test_each_open_door_gets_one_line_at_the_start(tmp_path: Path) -> None:
    """127.1 is a name as far as a door can tell, and loopback for the kernel."""
    with RunningBroker(tmp_path / "store", {**SMALL, "bindAddress": "127.1", "adminAddresses": "127.0.0.1"}) as broker:
        served = "brokerAddresses (--namesrv-set of ringmq serve)"
        assert warned_properties(broker) == ["haAllowedNetworks", "httpAllowedNetworks", served]
        with urllib.request.urlopen(broker.metrics_url + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        assert value(text, "ringmq_open_doors", property="haAllowedNetworks") == 1
        assert text.count("ringmq_open_doors{") == 3
        assert broker.stop() == 0


def test_a_name_with_both_addresses_is_stored_as_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(socket.AF_INET6, 1, 6, "", ("::1", 0, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(plane_setup.socket, "getaddrinfo", lambda *_, **__: both)
    assert plane_setup.address_of("localhost") == "127.0.0.1"


@pytest.mark.parametrize(
    ("field", "fault", "status"),
    [
        ("store_fault", lib.RMQ_FAULT_FSYNC, EXIT_UNCLEAN_STOP),
        ("dispatch_fault", lib.RMQ_FAULT_QUEUE_SYNC, EXIT_UNCLEAN_STOP),
        ("store_fault", lib.RMQ_FAULT_DISK_FULL, EXIT_CLEAN),
    ],
)
def test_a_stop_after_a_failed_sync_is_not_clean(tmp_path: Path, field: str, fault: int, status: int) -> None:
    """Though everything counts as flushed; a full disk with nothing left over is no reason to recover."""
    config = replace(changed(BrokerConfig(), SMALL), store_path_root_dir=str(tmp_path))
    name = plane_name(tmp_path)
    plane = Plane.create(name, plane_setup.capacity_of(config, WORKERS.rows(1)), tmp_path.stat(), 1)
    markers.write_abort(tmp_path, os.getpid())
    setattr(plane.watermarks, field, fault)
    assert server.finish(plane, tmp_path, EXIT_CLEAN) == status
    assert markers.has_abort(tmp_path) == (status != EXIT_CLEAN)


def test_a_stop_that_leaves_no_bounds_is_not_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an earlier stop end before the log, as if another broker had appended: POP's memory would be dropped."""
    config = replace(changed(BrokerConfig(), SMALL), store_path_root_dir=str(tmp_path))
    name = plane_name(tmp_path)
    plane = Plane.create(name, plane_setup.capacity_of(config, WORKERS.rows(1)), tmp_path.stat(), 1)
    write_queue_ends(tmp_path, 0, 500, [])
    markers.write_abort(tmp_path, os.getpid())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(queue_ends, "write_queue_ends", full)
    assert server.finish(plane, tmp_path, EXIT_CLEAN) == EXIT_UNCLEAN_STOP
    assert not is_of_another_broker(tmp_path, 1000, is_clean=True)
