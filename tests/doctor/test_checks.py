"""The checks, over made-up facts: each level of each finding, and every one that is not well says what to do."""

import dataclasses
import errno
from collections.abc import Iterable
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.doctor.check_endpoints import check_endpoints, endpoints_of
from ringmq.doctor.check_environment import (
    check_build,
    check_disk,
    check_name_servers,
    check_ports,
    check_store,
)
from ringmq.doctor.check_machine import (
    check_clock,
    check_cpus,
    check_engine,
    check_limits,
    check_memory_max,
    check_sysctls,
)
from ringmq.doctor.examine import check
from ringmq.doctor.facts import (
    ClockFacts,
    CpuFacts,
    DiskFacts,
    EngineFacts,
    Facts,
    LimitFacts,
    PeerFacts,
    PortFacts,
    RunningBrokerFacts,
    StoreFacts,
    TailFacts,
)
from ringmq.doctor.finding import FAIL, OK, WARN, Finding, counts
from ringmq.doctor.render import render
from ringmq.store.unsupported import Unsupported

GIB = 1 << 30
ENGINE = EngineFacts(kernel="6.1.0", disabled=0, setup_errno=0)
LIMITS = LimitFacts(8 << 20, 65_536, 65_536, GIB, GIB, 8 * GIB, 4 * GIB)
CPUS = CpuFacts(2, (0, 1), None, {"read-0": (0,), "write": (0,), "flush": (1,)}, 0)
CLOCK = ClockFacts(True, "tsc", 1_000_000)
DISK = DiskFacts("/s", "ext4", "rw", 20, 80 * GIB, 1 << 20, (0.5, 0.6, 0.9), 900.0)
STORE = StoreFacts("/s", exists=True, format_number=1, tail=TailFacts(10, 1000, 5000, 900_000))
WELL = Facts(ENGINE, LIMITS, CPUS, CLOCK, DISK, STORE)


def level(findings: Iterable[Finding], name: str) -> str:
    """Of the finding with this name; each says what it means, and what to do where it is not well."""
    found = [*findings]
    assert all(finding.meaning and bool(finding.advice) == (finding.level != OK) for finding in found), found
    return next(finding.level for finding in found if finding.name == name)


def disk(**changes: Any) -> list[Finding]:
    facts = dataclasses.replace(DISK, **changes)
    return [*check_disk(facts, log_file_bytes=GIB, full_ratio=90, clean_ratio=75, sync_flush=True)]


def store(**changes: Any) -> list[Finding]:
    return [*check_store(dataclasses.replace(STORE, **changes), accept_unserved=False)]


def test_everything_is_well_where_it_is() -> None:
    findings = check(WELL, BrokerConfig())
    assert {finding.level for finding in findings} == {OK}
    assert not any(finding.advice for finding in findings)
    assert len({(finding.area, finding.name) for finding in findings}) == len(findings)


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"disabled": 1}, "io_uring_disabled", WARN),
        ({"disabled": 2}, "io_uring_disabled", FAIL),
        ({"disabled": None}, "io_uring_disabled", OK),
        ({"seccomp": 2}, "seccomp", OK),
        ({"seccomp": 2, "setup_errno": errno.EPERM}, "seccomp", FAIL),
        ({"setup_errno": errno.ENOSYS}, "ring", FAIL),
        ({"missing_operations": ("recv",)}, "operations", FAIL),
        ({"missing_flags": ("DEFER_TASKRUN",)}, "setup flags", WARN),
        ({"refusal": "io_uring is refused: ..."}, "trial", FAIL),
    ],
)
def test_engine(changes: dict[str, Any], name: str, expected: str) -> None:
    facts = dataclasses.replace(ENGINE, **changes)
    assert level(check_engine(facts, "io_uring"), name) == expected
    assert level(check_engine(facts, "auto"), name) == (WARN if expected == FAIL else expected), "it runs on epoll"
    assert [finding.level for finding in check_engine(facts, "epoll")] == [OK]


@pytest.mark.parametrize(
    ("changes", "wanted", "expected"),
    [
        ({}, "auto", (OK, "to be used", "io_uring at the next start (ringmqEngine = auto)")),
        ({}, "epoll", (OK, "to be used", "epoll at the next start (ringmqEngine = epoll)")),
        (
            {"refusal": "io_uring is refused"},
            "auto",
            (WARN, "to be used", "epoll at the next start (ringmqEngine = auto)"),
        ),
        ({"running": "io_uring", "running_why": "because"}, "auto", (OK, "in use", "io_uring: because")),
        (
            {"running": "epoll", "running_why": "because", "running_is_fallback": True},
            "auto",
            (WARN, "in use", "epoll: because"),
        ),
    ],
)
def test_the_engine_is_named(changes: dict[str, Any], wanted: str, expected: tuple[str, str, str]) -> None:
    found, *_ = check_engine(dataclasses.replace(ENGINE, **changes), wanted)
    assert (found.level, found.name, found.value) == expected


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"files_hard": 1024}, "open files", WARN),
        ({"files_hard": 100}, "open files", FAIL),
        ({"files_hard": -1}, "open files", OK),
        ({"files_soft": 100}, "open files", OK),
        ({"memlock_bytes": 65_536}, "locked memory", WARN),
        ({"memlock_bytes": -1}, "locked memory", OK),
        ({"shm_free_bytes": 32 << 20}, "/dev/shm", WARN),
        ({"shm_free_bytes": 1 << 20}, "/dev/shm", FAIL),
        ({"memory_free_bytes": 100 << 20}, "memory", WARN),
    ],
)
def test_limits(changes: dict[str, Any], name: str, expected: str) -> None:
    assert level(check_limits(dataclasses.replace(LIMITS, **changes)), name) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"vm.dirty_ratio": "20", "vm.dirty_bytes": "0"}, OK),
        ({"vm.dirty_ratio": "80", "vm.dirty_bytes": "0"}, WARN),
        ({"vm.dirty_ratio": "80", "vm.dirty_bytes": "268435456"}, OK),
        ({"net.core.somaxconn": "128"}, WARN),
        ({"net.ipv4.tcp_wmem": "4096\t16384\t4194304"}, OK),
        ({"net.ipv4.tcp_rmem": "4096 131072 212992"}, WARN),
        ({"vm.overcommit_memory": "2"}, WARN),
        ({"vm.swappiness": "100"}, WARN),
        ({"vm.max_map_count": "65530", "fs.file-max": "9223372036854775807"}, OK),
    ],
)
def test_kernel_settings(values: dict[str, str], expected: str) -> None:
    levels = [finding.level for finding in check_sysctls(values, 8 * GIB)]
    assert levels
    assert set(levels) == {expected}


def test_kernel_settings_that_are_not_there_or_nonsense_are_left_out() -> None:
    assert [*check_sysctls({"net.core.somaxconn": "many", "net.ipv4.tcp_wmem": "1 2"}, GIB)] == []


def test_cpus_and_the_plan() -> None:
    findings = [*check_cpus(dataclasses.replace(CPUS, usable=(3,), quota_cpus=0.5))]
    assert [finding.level for finding in findings] == [WARN, WARN, OK]
    assert [*check_cpus(CPUS)][-1].value == "0: read-0 write; 1: flush"


@pytest.mark.parametrize(
    ("changes", "newest_ms", "name", "expected"),
    [
        ({"synchronized": False}, 0, "NTP", WARN),
        ({"synchronized": None}, 0, "NTP", WARN),
        ({"source": "hpet"}, 0, "source", WARN),
        ({}, 1_000_500, "against the store", OK),
        ({}, 1_060_000, "against the store", WARN),
    ],
)
def test_clock(changes: dict[str, Any], newest_ms: int, name: str, expected: str) -> None:
    assert level(check_clock(dataclasses.replace(CLOCK, **changes), newest_ms), name) == expected


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"filesystem": "tmpfs"}, "file system", WARN),
        ({"filesystem": "fuse.sshfs"}, "file system", WARN),
        ({"filesystem": "xfs"}, "file system", OK),
        ({"used_percent": 75}, "space", WARN),
        ({"used_percent": 90}, "space", FAIL),
        ({"free_bytes": GIB}, "space", FAIL),
        ({"inodes_free": 10}, "inodes", WARN),
        ({"sync_ms": (20.0, 30.0)}, "fdatasync", WARN),
        ({"sync_ms": (1.0, 1.0, 500.0)}, "fdatasync", WARN),
        ({"write_mib_per_s": 20.0}, "bandwidth", WARN),
        ({"error": "Permission denied"}, "speed", WARN),
    ],
)
def test_disk(changes: dict[str, Any], name: str, expected: str) -> None:
    assert level(disk(**changes), name) == expected


def test_a_taken_port_is_right_only_where_the_stores_own_broker_runs() -> None:
    taken = [PortFacts("listenPort", "127.0.0.1:10911", "Address already in use", "java (77)")]
    (alone,) = check_ports(taken, is_running=False)
    assert (alone.level, alone.value) == (FAIL, "127.0.0.1:10911 Address already in use, by java (77)")
    (of_serve,) = check_ports([dataclasses.replace(taken[0], is_needed=False)], is_running=False)
    assert of_serve.level == WARN
    (running,) = check_ports(taken, is_running=True)
    assert running.level == OK
    broker = RunningBrokerFacts(70, ("127.0.0.1:9876", "0.0.0.0:10911"))
    listening, own = check_ports(taken, is_running=True, broker=broker)
    assert (listening.level, listening.value) == (OK, "127.0.0.1:9876, 0.0.0.0:10911 (process 70)")
    assert (own.level, own.value) == (OK, "127.0.0.1:10911 listens (process 70)")
    assert [*check_build(None), *check_build(broker)] == []
    (replaced,) = check_build(dataclasses.replace(broker, is_of_other_build=True))
    assert (replaced.level, replaced.value) == (WARN, "replaced while the broker runs (process 70)")
    elsewhere = dataclasses.replace(broker, listeners=("127.0.0.1:21911",))
    _, others = check_ports(taken, is_running=True, broker=elsewhere)
    assert (others.level, others.value) == (WARN, "127.0.0.1:10911 Address already in use, by java (77)")
    assert "options with which the broker was started" in others.advice
    (unknown,) = check_ports(taken, is_running=True, broker=dataclasses.replace(broker, listeners=()))
    assert (unknown.level, "presumably by the broker" in unknown.meaning) == (OK, True)
    (hidden,) = check_ports(taken, is_running=None)
    assert (hidden.level, hidden.advice) == (WARN, "run doctor as the broker's user, or as root")
    assert [finding.level for finding in check_name_servers([PeerFacts("a:1"), PeerFacts("b:1", "refused")])] == [
        OK,
        WARN,
    ]


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"is_writable": False}, "folder", FAIL),
        ({"foreign_files": 3}, "folder", WARN),
        ({"format_number": 99}, "format", FAIL),
        ({"format_number": 0}, "format", OK),
        ({"error": "no such size"}, "files", FAIL),
        ({"other_sizes": "mappedFileSizeCommitLog=67108864"}, "files", WARN),
        ({"failed_cause": "fdatasync of the log: EIO"}, "ringmq.failed", FAIL),
        ({"has_abort": True}, "abort", WARN),
        ({"is_locked": True, "dispatch_lag_bytes": GIB, "flush_lag_bytes": 0}, "lag", WARN),
        ({"is_locked": True, "dispatch_lag_bytes": 0, "flush_lag_bytes": 0}, "lag", OK),
        ({"is_locked": None}, "owner", WARN),
        ({"denied": ("/s/lock: Permission denied",)}, "access", FAIL),
        ({"is_locked": True, "is_writable": False}, "folder", WARN),
        ({"is_locked": True, "other_sizes": "mappedFileSizeCommitLog=67108864"}, "files", WARN),
        ({"tail": TailFacts(1, 10, 10, 0, "no valid record at 10: bad CRC")}, "tail of the log", FAIL),
        ({"has_abort": True, "tail": TailFacts(1, 10, 10, 0, "no valid record")}, "tail of the log", WARN),
        ({"unsupported": (Unsupported("delay", "delayed", 3),)}, "unserved", FAIL),
        ({"cut_files": 1}, "cut or salvaged", WARN),
    ],
)
def test_store(changes: dict[str, Any], name: str, expected: str) -> None:
    findings = store(**changes)
    assert level(findings, name) == expected
    assert all(finding.advice for finding in findings if finding.level != OK)


def test_what_was_accepted_is_no_failure_and_a_live_brokers_mark_no_warning() -> None:
    facts = dataclasses.replace(
        STORE, unsupported=(Unsupported("delay", "delayed", 3),), is_locked=True, has_abort=True
    )
    findings = [*check_store(facts, accept_unserved=True)]
    assert level(findings, "unserved") == WARN
    assert "abort" not in {finding.name for finding in findings}
    facts = dataclasses.replace(STORE, unsupported=(Unsupported("rocksdb timers", "timers in RocksDB", None),))
    findings = [*check_store(facts, accept_unserved=True)]
    assert level(findings, "rocksdb") == FAIL and "unserved" not in {finding.name for finding in findings}
    assert [finding.level for finding in check_store(StoreFacts("/s", exists=False), accept_unserved=False)] == [OK]


def test_a_terminal_shows_what_is_wrong_with_what_to_do() -> None:
    findings = [
        Finding("disk", "space", FAIL, "full " * 30, "sends are refused", "make room"),
        Finding("disk", "inodes", OK, "9 free", "one per queue"),
        Finding("clock", "NTP", WARN, "off", "times", "switch it on"),
    ]
    lines = [*render(findings, 60, verbose=False, paint=lambda text, colour: text)]
    assert lines[0] == "disk"
    assert lines[1].startswith("  FAIL  space   full full")
    assert max(map(len, lines)) <= 60
    assert "        -> make room" in lines
    assert "one per queue" not in "\n".join(lines)
    assert lines[-1] == "1 to correct, 1 to look at, 1 well"
    assert counts(findings) == {OK: 1, WARN: 1, FAIL: 1}
    assert "one per queue" in "\n".join(render(findings, 60, verbose=True, paint=lambda text, colour: text))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"adminAddresses": OK, "haAllowedNetworks": OK, "httpAllowedNetworks": OK}),
        ({"bind_address": "0.0.0.0"}, {"adminAddresses": WARN, "haAllowedNetworks": WARN, "httpAllowedNetworks": WARN}),
        (
            {"bind_address": "0.0.0.0", "admin_addresses": "10.0.0.7", "metrics_prom_exporter_host": "127.0.0.1"},
            {"adminAddresses": OK, "haAllowedNetworks": WARN, "httpAllowedNetworks": OK},
        ),
        (
            {"bind_address": "::", "broker_role": "SLAVE", "metrics_exporter_type": "DISABLE"},
            {"adminAddresses": WARN, "haAllowedNetworks": WARN},
        ),
    ],
)
def test_doors(changes: dict[str, str], expected: dict[str, str]) -> None:
    findings = [
        *check_endpoints(endpoints_of(dataclasses.replace(BrokerConfig(namesrv_addr="10.0.0.5:9876"), **changes)))
    ]
    assert {finding.name.partition(" of ")[0]: finding.level for finding in findings} == expected
    for finding in findings:
        assert bool(finding.advice) == (finding.level != OK)
        assert finding.level == OK or f"set {finding.name.partition(' of ')[0]} " in finding.advice


@pytest.mark.parametrize(("max_bytes", "expected"), [(GIB, OK), (2 * GIB, OK), (2 * GIB + 1, WARN)])
def test_the_memory_limit_is_below_the_memory_of_the_machine(max_bytes: int, expected: str) -> None:
    assert level(check_memory_max(max_bytes, 2 * GIB), "ringmqMemoryMax") == expected


def test_the_name_server_of_serve_has_doors_too() -> None:
    findings = [*check_endpoints(endpoints_of(BrokerConfig(bind_address="0.0.0.0", admin_addresses="10.0.0.7")))]
    served = {finding.name: finding.level for finding in findings if "9876" in finding.name}
    assert served == {"adminAddresses of 0.0.0.0:9876": OK, "brokerAddresses of 0.0.0.0:9876": WARN}
