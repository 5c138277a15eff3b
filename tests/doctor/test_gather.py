"""The gatherers on this machine: what they say is true of it, and they leave nothing behind."""

import contextlib
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import owner_of
from ringmq.doctor import collect, uring
from ringmq.doctor.check_environment import check_role, check_store
from ringmq.doctor.finding import FAIL, WARN
from ringmq.doctor.gather_disk import SYNC_ROUNDS_MAX, gather_disk
from ringmq.doctor.gather_machine import gather_clock, gather_cpus, gather_engine, gather_limits, gather_sysctls
from ringmq.doctor.gather_network import gather_name_servers, gather_ports, gather_serve_port, wanted_ports
from ringmq.doctor.gather_store import gather_role, gather_store, read_tail
from ringmq.loadtest.stock import free_port
from ringmq.store import markers
from ringmq.store.config import StoreConfig
from ringmq.store.index_file import index_paths
from ringmq.store.message_store import MessageStore
from ringmq.store.store_lock import StoreLock
from ringmq.store.tenure_file import TenureRecord, write_tenure
from tests.store.conftest import basic_copy, golden_basic  # noqa: F401
from tests.store.golden_stores import basic_config


@pytest.mark.io_uring
def test_io_uring_works_where_these_tests_run() -> None:
    facts = gather_engine()
    assert (facts.setup_errno, facts.missing_operations, facts.refusal) == (0, (), "")


@pytest.mark.io_uring
def test_the_survey_tells_operations_and_flags_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(uring.OPERATIONS, "operation of the future", 255)
    monkeypatch.setitem(uring.FLAGS, "FLAG_OF_THE_FUTURE", 1 << 31)
    before = len([*Path("/proc/self/fd").iterdir()])
    found = uring.survey_ring()
    assert found.missing_operations == ("operation of the future",)
    assert found.missing_flags == ("FLAG_OF_THE_FUTURE",)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_limits_cpus_clock_and_kernel_settings_are_read() -> None:
    limits = gather_limits()
    assert limits.shm_total_bytes >= limits.shm_free_bytes > 0
    assert limits.memory_bytes > limits.memory_free_bytes > 0
    assert gather_limits(1 << 30).broker == 0, "nobody there: those of this process"
    cpus = gather_cpus(BrokerConfig(), (sorted(os.sched_getaffinity(0))[0],))
    assert len(cpus.usable) == 1
    assert {"read-0", "write", "flush", "dispatch", "control"} <= set(cpus.plan)
    assert gather_clock().now_ms > 1_700_000_000_000
    assert gather_sysctls()["vm.overcommit_memory"] in ("0", "1", "2")
    assert gather_sysctls(["no.such.setting"]) == {}


def test_the_disk_is_measured_within_bounds_and_nothing_stays(tmp_path: Path) -> None:
    ticks = itertools.count()
    facts = gather_disk(tmp_path / "not" / "there", clock=lambda: next(ticks) * 0.01)
    assert facts.folder == str(tmp_path)
    assert facts.filesystem
    assert 0 <= facts.used_percent <= 100
    assert 0 < len(facts.sync_ms) <= SYNC_ROUNDS_MAX
    assert facts.write_mib_per_s is not None and facts.write_mib_per_s > 0
    assert list(tmp_path.iterdir()) == []
    assert gather_disk(tmp_path, measure=False).sync_ms == ()


def test_a_taken_port_names_its_owner() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        (taken,) = gather_ports([("listenPort", "127.0.0.1", port)])
        assert "in use" in taken.error
        assert str(os.getpid()) in taken.owner
        (peer,) = gather_name_servers(f"127.0.0.1:{port}")
        assert peer.error == ""
    (free,) = gather_ports([("listenPort", "127.0.0.1", port)])
    (gone,) = gather_name_servers(f"127.0.0.1:{port}")
    assert (free.error, "refused" in gone.error) == ("", True)


def test_a_port_that_cannot_be_and_a_name_that_is_no_text_are_told() -> None:
    (impossible,) = gather_ports([("haListenPort", "127.0.0.1", 65536)])
    assert "0-65535" in impossible.error
    name = Path("/proc/self/comm")
    before = name.read_bytes()
    name.write_bytes(b"\xff\xfe")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            (taken,) = gather_ports([("listenPort", "127.0.0.1", server.getsockname()[1])])
    finally:
        name.write_bytes(before.strip())
    assert taken.owner.endswith(f"({os.getpid()})")


def test_ports_are_those_of_the_configuration() -> None:
    assert [port for _, _, port in wanted_ports(BrokerConfig())] == [10911, 10909, 10912]
    slave = BrokerConfig(broker_role="SLAVE", broker_id=1, metrics_prom_exporter_port=6000)
    assert [port for _, _, port in wanted_ports(slave)] == [10911, 10909, 10912, 6000]
    assert wanted_ports(BrokerConfig(listen_port=0)) == []
    assert [port.address for port in gather_serve_port(BrokerConfig())] == ["127.0.0.1:9876"]
    assert gather_serve_port(BrokerConfig(namesrv_addr="h:9876")) == ()


def test_a_role_other_than_that_of_the_configuration_is_told(tmp_path: Path) -> None:
    config = BrokerConfig(store_path_root_dir=str(tmp_path))
    assert not list(check_role(gather_role(config)))
    write_tenure(tmp_path, owner_of(config), TenureRecord(True))
    assert not list(check_role(gather_role(config)))
    write_tenure(tmp_path, owner_of(config), TenureRecord(False, 65537))
    [finding] = check_role(gather_role(config))
    assert (finding.level, finding.name) == (WARN, "role")
    assert "this broker is a slave of epoch 65537" in finding.value
    (tmp_path / "config" / "ringmqTenure.json").write_text("{")
    [finding] = check_role(gather_role(config))
    assert finding.level == FAIL
    assert "does not say the role of this broker" in finding.value


def test_a_store_is_looked_at_without_writing(basic_copy: Path) -> None:  # noqa: F811
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in basic_copy.rglob("*")}
    facts = gather_store(basic_config(basic_copy))
    assert facts.error == ""
    assert not facts.unsupported
    assert facts.tail is not None
    assert (facts.tail.records, facts.tail.end_offset, facts.tail.damage) == (4302, 3478574, "")
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in basic_copy.rglob("*")} == before


def test_a_damaged_tail_another_size_and_marks_are_told(basic_copy: Path) -> None:  # noqa: F811
    markers.write_abort(basic_copy, 1)
    markers.write_failed_marker(basic_copy, "fdatasync: EIO")
    with (basic_copy / "commitlog" / "00000000000003145728").open("r+b") as file:
        file.seek(300_000)
        file.write(b"\xff" * 1000)
    facts = gather_store(basic_config(basic_copy))
    assert facts.has_abort and facts.failed_cause == "fdatasync: EIO"
    assert facts.tail is not None and "no valid record at 34" in facts.tail.damage
    assert "1073741824" in gather_store(StoreConfig(root=basic_copy)).error


def test_an_index_file_of_a_wrong_size_is_told(basic_copy: Path) -> None:  # noqa: F811
    path = index_paths(basic_copy / "index")[-2]
    path.write_bytes(path.read_bytes()[:1000])
    facts = gather_store(basic_config(basic_copy))
    assert f"{path} has 1000 bytes" in str(facts.error)


def test_what_recoveries_have_cut_is_counted_where_earlier_versions_kept_it_too(tmp_path: Path) -> None:
    for place in (tmp_path / "store", tmp_path / "mount"):
        (place / "ringmq.cut").mkdir(parents=True)
        (place / "ringmq.cut" / f"{0:020d}").touch()
    assert gather_store(StoreConfig(root=tmp_path / "store")).cut_files == 1
    elsewhere = StoreConfig(root=tmp_path / "store", commit_log_directories=(tmp_path / "mount" / "log",))
    assert gather_store(elsewhere).cut_files == 2


def test_an_empty_and_an_absent_folder_are_no_error(tmp_path: Path) -> None:
    facts = gather_store(StoreConfig(root=tmp_path))
    assert (facts.exists, facts.error, facts.tail) == (True, "", None)
    assert read_tail(MessageStore(StoreConfig(root=tmp_path)), 0) is None
    assert not gather_store(StoreConfig(root=tmp_path / "absent")).exists


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_root_looks_at_a_services_store_with_the_services_eyes(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "commitlog", tmp_path / "config"):
        path.mkdir(exist_ok=True)
        os.chown(path, 4711, 4711)
    assert gather_store(StoreConfig(root=tmp_path)).foreign_files == 0
    (tmp_path / "lock").touch()
    assert gather_store(StoreConfig(root=tmp_path)).foreign_files == 1, "the service could not take its lock"


def test_an_owner_is_seen(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    assert gather_store(StoreConfig(root=tmp_path)).is_locked
    lock.close()


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """As a user who owns nothing: root would be let in everywhere."""
    user = os.geteuid()
    os.seteuid(user or 4711)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("closed", ["the store", "the folder above"])
def test_a_store_that_may_not_be_looked_into_is_a_finding(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "versions", dict)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "above", "store")
        root.mkdir(parents=True)
        Path(folder).chmod(0o755)
        shut = root if closed == "the store" else root.parent
        shut.chmod(0)
        try:
            with without_rights():
                facts = gather_store(StoreConfig(root=root))
                disk = gather_disk(root)
                bundle = [*collect.collect(BrokerConfig(store_path_root_dir=str(root)), [], [])]
        finally:
            shut.chmod(0o700)
    (finding,) = check_store(facts, accept_unserved=False)
    assert (finding.level, finding.name) == (FAIL, "folder")
    assert "Permission denied" in finding.value and str(root) in finding.value
    assert "Permission denied" in disk.error
    (marks,) = [entry.data for entry in bundle if entry.name.startswith("store/")]
    assert b"Permission denied" in marks
