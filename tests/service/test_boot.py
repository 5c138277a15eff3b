"""RingMQ as a service of a real boot: systemd in a machine of its own, the installed units, faults by hand.

`make test-service` prints the transcript. The tests run in this order on one machine.
"""

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ringmq.loadtest.load.tools import arguments_of, build_tools
from tests.native.test_crash_points import crash_build
from tests.service.machine import DISK, ROOT, Machine, why_not_here, write_lines

pytestmark = [
    pytest.mark.skipif(bool(why_not_here()), reason=why_not_here() or "a machine can be booted"),
    pytest.mark.timeout(900),  # the first one installs into an environment of its own
]
BROKER, NAMESRV, SLAVE = "ringmq-broker@default", "ringmq-namesrv@default", "ringmq-slave@default"
ADDRESS = "127.0.0.1:10911"
RECORD_BYTES = 1250  # of a message of 1 KiB in the log, about
LONG_LOG_GB, WITHOUT_SERVICE_S_MAX = 10.0, 2.0
FILES = {"MAPPED_FILE_SIZE_COMMIT_LOG": 64 << 20, "MAX_HASH_SLOT_NUM": 10_000, "MAX_INDEX_NUM": 40_000}
"""For every instance: the machine's disk is memory."""
SMALL_FILES = {
    "MAPPED_FILE_SIZE_COMMIT_LOG": 1 << 20,
    "MAPPED_FILE_SIZE_CONSUME_QUEUE": 6000,
    "MAX_MESSAGE_SIZE": 65_536,
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("machine")) as booted:
        set_environment(booted, "ringmq", FILES)
        yield booted


@pytest.fixture(autouse=True)
def heading(request: pytest.FixtureRequest) -> None:
    print(f"\n== {request.node.name.removeprefix('test_').replace('_', ' ')}", flush=True)


def set_environment(machine: Machine, name: str, values: Mapping[str, object]) -> None:
    """Write /etc/ringmq/<name>.env."""
    path = machine.root / "etc" / "ringmq" / f"{name}.env"
    path.write_text("".join(f"RINGMQ_{variable}={value}\n" for variable, value in values.items()))


def add_broker(machine: Machine, name: str, port: int) -> str:
    """Configure one more instance; its unit."""
    folder = machine.root / "etc" / "ringmq" / "broker"
    text = (folder / "default.conf").read_text().replace("broker-a", f"broker-{name}").replace("10911", str(port))
    (folder / f"{name}.conf").write_text(text)
    return f"ringmq-broker@{name}"


def wait_status(machine: Machine, unit: str, start: str, *, is_all: bool = False) -> None:
    """Until the unit's status begins so; a worker that came late with its loop may stand in it for a moment."""

    def is_said() -> bool:
        status = machine.prop(unit, "StatusText")
        return status.startswith(start) and not (is_all and ";" in status)

    machine.wait(is_said, f"the status of {unit} begins with {start!r}")


class Load:
    """Clients that send, each trying once more after a failure, until `end`."""

    def __init__(self, machine: Machine, folder: Path, clients: int = 8, address: str = ADDRESS) -> None:
        self._over = folder / "over"
        self._process = machine.python("tests.service.restart_load", address, str(clients), str(self._over))
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n"

    def end(self) -> dict[str, Any]:
        self._over.touch()
        said, _ = self._process.communicate(timeout=60)
        result: dict[str, Any] = json.loads(said)
        write_lines(*(f"{name}: {value}" for name, value in result.items() if name != "bodies"))
        return result


def read_back(machine: Machine, topic: str = "RestartLoad", address: str = ADDRESS) -> list[str]:
    said, _ = machine.python("tests.service.read_back", address, topic).communicate(timeout=60)
    bodies: list[str] = json.loads(said)
    return bodies


def send(machine: Machine, body: str) -> None:
    """Until it is taken: after a death name servers and clients have to learn of the broker again."""
    command = f"ringmq produce Boot -m {body}"
    machine.wait(lambda: " OK" in machine.run(command, status=None, show=False), command)
    write_lines(f"# {command}: taken")


def test_start_produce_and_read(machine: Machine) -> None:
    machine.run(f"systemctl enable --now {NAMESRV} {BROKER}")
    machine.run(f"systemctl status {BROKER} {NAMESRV} | grep -E 'service -|Active|Status'")
    wait_status(machine, BROKER, "serving: broker broker-a on 127.0.0.1:10911", is_all=True)
    machine.wait(lambda: "1 brokers" in machine.prop(NAMESRV, "StatusText"), "the name server knows the broker")
    send(machine, "hello")
    assert "hello" in machine.run("ringmq consume Boot -g readers --count 1", timeout_s=60)
    machine.run("useradd -M -G ringmq spark; useradd -M stranger")
    inspect = "ringmq store inspect /var/lib/ringmq/broker/default"
    machine.run(f"runuser -u spark -- {inspect} | head -3")
    machine.run(f"runuser -u stranger -- {inspect}", status=2)
    journal = machine.journal(BROKER)
    write_lines("journal:", *journal.splitlines())
    assert "INFO supervisor ready for clients" in journal
    assert "store recovered in" in journal


def test_exposure(machine: Machine) -> None:
    for unit in (BROKER, NAMESRV, SLAVE):
        said = machine.run(f"systemd-analyze security --no-pager {unit} | grep -v ✓")
        exposure = float(said.rpartition(": ")[2].split()[0])
        assert exposure <= 2.0


def test_a_killed_worker_is_started_again(machine: Machine) -> None:
    machine.run("ringmq top --once --interval 0.5 | head -3")  # starts the one that sleeps until it is asked
    before = machine.workers(BROKER)
    write_lines(f"workers: {', '.join(before)}")
    assert {"control", "dispatch", "flush", "metrics", "read-0", "write"} <= before.keys()
    for name, process in before.items():
        if name == "main":
            continue
        process.send_signal(signal.SIGKILL)
        machine.wait(
            lambda name=name, old=process.pid: getattr(machine.workers(BROKER).get(name), "pid", old) != old,
            f"{name} is started again",
        )
        send(machine, f"after-{name}")
    assert machine.prop(BROKER, "NRestarts") == "0"
    assert "ended with signal 9; starting it again" in machine.journal(BROKER)


def test_a_killed_broker_is_started_again(machine: Machine) -> None:
    old = machine.workers(BROKER)["main"]
    old.send_signal(signal.SIGKILL)
    send(machine, "while-it-comes-back")  # waits in the listener that systemd has kept
    machine.wait_active(BROKER)
    assert machine.prop(BROKER, "NRestarts") == "1"
    journal = machine.journal(BROKER)
    assert "(same boot)" in journal, "recovery knows that the page cache has survived"
    write_lines(*journal.splitlines()[-8:])


def test_a_killed_name_server_is_started_again(machine: Machine) -> None:
    machine.workers(NAMESRV)["main"].send_signal(signal.SIGKILL)
    send(machine, "while-routes-come-back")  # the question for the route waits in the listener
    machine.wait_active(NAMESRV)
    assert machine.prop(NAMESRV, "NRestarts") == "1"
    wait_status(machine, NAMESRV, "serving on 127.0.0.1:9876: 1 brokers")


def test_restart_under_load_refuses_and_loses_nothing(machine: Machine, tmp_path: Path) -> None:
    load = Load(machine, tmp_path)
    for _ in range(2):
        machine.run(f"systemctl restart {BROKER}")
    result = load.end()
    assert result["acknowledged"] > 0
    assert (result["refused"], result["failed"]) == (0, 0)
    assert set(result["bodies"]) <= set(read_back(machine))


@pytest.mark.io_uring  # the load generator
def test_restart_with_a_long_log(machine: Machine, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    unit, store, port = add_broker(machine, "long", 10511), "/var/lib/ringmq/broker/long", 10511
    log_gb = float(pytestconfig.getoption("--long-log-gb", default=0.2))
    set_environment(machine, "broker/long", {"MAPPED_FILE_SIZE_COMMIT_LOG": 1 << 30})
    machine.run(f"mkdir -p {store}; chown ringmq:ringmq {DISK}; chmod 750 {DISK}; mount --bind {DISK} {store}")
    machine.run(f"systemctl start {unit}")
    size = {"size": 1024, "batch": 32, "messages": int(log_gb * 1e9 / RECORD_BYTES), "connections": 8, "depth": 2}
    words = arguments_of({"port": port, "topic": "Long", "create": True, "check": True, "settle_ms": 60_000, **size})
    filled = json.loads(machine.outside(str(build_tools().load), "batch", *words).communicate(timeout=600)[0])
    assert filled["ok"], filled
    write_lines(f"{filled['acked']} messages of 1 KiB: a log of {filled['acked'] * RECORD_BYTES / 1e9:.1f} GB")
    load = Load(machine, tmp_path, address=f"127.0.0.1:{port}")
    machine.run(f"systemctl restart {unit}")
    result = load.end()
    machine.run(f"journalctl -u {unit} -o cat -n 20 | grep -E 'recovered|ready'; systemctl stop {unit}; umount {store}")
    assert (result["refused"], result["failed"]) == (0, 0)
    if log_gb >= LONG_LOG_GB:
        assert result["longest_gap_s"] <= WITHOUT_SERVICE_S_MAX


def test_a_hung_worker_makes_the_watchdog_bite(machine: Machine) -> None:
    folder = f"/run/systemd/system/{BROKER}.service.d"
    machine.run(f"mkdir -p {folder}; printf '[Service]\\nWatchdogSec=6\\n' > {folder}/short.conf")
    machine.run(f"systemctl daemon-reload; systemctl restart {BROKER}")
    restarts = int(machine.prop(BROKER, "NRestarts"))
    machine.workers(BROKER)["flush"].send_signal(signal.SIGSTOP)
    took = machine.wait(lambda: int(machine.prop(BROKER, "NRestarts")) > restarts, "the watchdog has bitten")
    write_lines(f"bitten after {took:.1f} s, WatchdogSec=6")
    machine.wait_active(BROKER)
    journal = machine.journal(BROKER)
    assert "worker flush has not turned its loop for 3 s" in journal
    assert "Watchdog timeout" in journal
    send(machine, "after-the-bite")
    machine.run(f"rm -r {folder}; systemctl daemon-reload; systemctl restart {BROKER}")


def test_reload_reports_each_key(machine: Machine) -> None:
    conf = "/etc/ringmq/broker/default.conf"
    machine.run(f"systemctl reload {BROKER}")
    machine.run(f"echo maxMsgsNumBatch=65 >> {conf}; systemctl reload {BROKER}")
    set_environment(machine, "broker/default", {"FLUSH_DISK_TYPE": "SYNC_FLUSH"})
    machine.run(f"echo qqq=1 >> {conf}")
    machine.run(f"systemctl reload {BROKER}", status=1)
    machine.run(f"sed -i /qqq/d {conf}; systemctl reload {BROKER}", status=1)
    journal = machine.journal(BROKER)
    write_lines(
        "journal:", *(line for line in journal.splitlines() if "->" in line or "qqq" in line or "nothing to" in line)
    )
    assert "nothing to change" in journal
    assert "maxMsgsNumBatch: 64 -> 65: changed live" in journal
    assert "qqq is not a known property" in journal
    assert "flushDiskType: ASYNC_FLUSH -> SYNC_FLUSH: needs a restart" in journal
    assert machine.prop(BROKER, "ActiveState") == "active"
    machine.run(f"rm /etc/ringmq/broker/default.env; systemctl restart {BROKER}")


def test_reload_of_a_name_server_reports_each_key(machine: Machine) -> None:
    machine.run(f"systemctl reload {NAMESRV}")
    machine.run(f"echo waitSecondsForService=46 >> /etc/ringmq/namesrv/default.conf; systemctl reload {NAMESRV}")
    journal = machine.journal(NAMESRV)
    write_lines("journal:", *(line for line in journal.splitlines() if "->" in line or "nothing to" in line))
    assert "the name server runs with this configuration: nothing to change" in journal
    assert "waitSecondsForService: 45 -> 46: changed live" in journal


def test_instances_and_a_slave(machine: Machine) -> None:
    second = add_broker(machine, "second", 10811)
    machine.run(f"systemctl start {second} {SLAVE}")
    wait_status(machine, second, "serving: broker broker-second on 127.0.0.1:10811")
    machine.run(f"systemctl status {SLAVE} | grep -E 'service -|Active|Status'")
    wait_status(machine, SLAVE, "serving reads: broker broker-a on 127.0.0.1:10921")
    wanted = read_back(machine)
    machine.wait(lambda: read_back(machine, address="127.0.0.1:10921") == wanted, "the slave has what its master has")
    machine.run(f"systemctl stop {second} {SLAVE}")
    assert machine.prop(BROKER, "ActiveState") == "active"


def test_a_full_disk_at_the_start(machine: Machine) -> None:
    unit, store = add_broker(machine, "full", 10711), "/var/lib/ringmq/broker/full"
    set_environment(machine, "broker/full", {**SMALL_FILES, "CLEAN_RESOURCE_INTERVAL": 1000})
    machine.run(f"mkdir -p {store}; mount -t tmpfs -o size=24m,mode=0750,uid=ringmq,gid=ringmq full {store}")
    machine.run(f"dd if=/dev/zero of={store}/ballast bs=64k 2>&1 | tail -1; systemctl start {unit}", status=1)
    assert "No space left on device" in machine.journal(unit)
    machine.run(f"rm {store}/ballast")
    took = machine.wait_active(unit)
    write_lines(f"it comes up by itself when there is room: {took:.1f} s")
    machine.run(
        f"systemctl stop {unit}; dd if=/dev/zero of={store}/ballast bs=64k 2>&1 | tail -1; systemctl start {unit}"
    )
    machine.wait(lambda: "the disk is full" in machine.prop(unit, "StatusText"), "the status says so")
    machine.run(f"systemctl status {unit} | grep -E 'Active|Status'; rm {store}/ballast")
    wait_status(machine, unit, "serving: ")
    journal = machine.journal(unit)
    write_lines("journal:", *journal.splitlines()[-6:])
    machine.run(f"systemctl stop {unit}; umount {store}")


def test_a_failed_fsync_stays_until_an_operator_acts(machine: Machine) -> None:
    unit, built, letter = add_broker(machine, "faulty", 10611), crash_build(), "/var/lib/ringmq/switch/letter"
    machine.run(f"mkdir -p /opt/test-build /var/lib/ringmq/switch; printf - > {letter}")
    (machine.root / "opt" / "test-build" / built.name).write_bytes(built.read_bytes())
    machine.run("chmod -R a+rX /opt/test-build /var/lib/ringmq/switch")
    set_environment(
        machine, "broker/faulty", {"NATIVE": f"/opt/test-build/{built.name}", "SYNC_SWITCH": letter, **SMALL_FILES}
    )
    machine.run(f"systemctl start {unit}; printf f > {letter}")
    said = machine.python("tests.service.send_one", "127.0.0.1:10611", "Faulty").communicate(timeout=60)[0]
    write_lines(f"a send: {said.strip()}")
    machine.wait(lambda: "fsync" in machine.prop(unit, "StatusText"), "the status says so")
    machine.run(f"printf - > {letter}; systemctl status {unit} | grep -E 'Active|Status'")
    wait_status(machine, unit, "serving reads:")  # a disk that is well again changes nothing
    assert (machine.prop(unit, "ActiveState"), machine.prop(unit, "NRestarts")) == ("active", "0")
    machine.run(f"systemctl restart {unit}; systemctl status {unit} | grep -E 'Active|Status'")
    assert "the last run ended with a failed fsync" in machine.journal(unit)
    wait_status(machine, unit, "serving: ")
    machine.run(f"systemctl stop {unit}")


def test_stop_loses_nothing_and_stays_stopped(machine: Machine, tmp_path: Path) -> None:
    before = set(read_back(machine))
    load = Load(machine, tmp_path, clients=4)
    machine.wait(lambda: len(read_back(machine)) > len(before) + 20, "messages come in")
    machine.run(f"systemctl stop {BROKER}")
    time.sleep(3)  # span: clients come back to a broker that is stopped
    result = load.end()
    assert result["refused"] > 0, "nobody listens for a stopped broker"
    assert machine.prop(BROKER, "ActiveState") == "inactive", "clients that come back do not start it"
    assert "stopped cleanly at offset" in machine.journal(BROKER)
    machine.run("ringmq store verify /var/lib/ringmq/broker/default | tail -3")
    machine.run(f"systemctl start {BROKER}")
    assert before | set(result["bodies"]) <= set(read_back(machine))


def test_uninstall(machine: Machine) -> None:
    script = machine.root / "tmp-install"
    subprocess.run(["cp", "-r", ROOT / "systemd", script], check=True)
    machine.run("/tmp-install/install uninstall")
    machine.run("systemctl list-unit-files 'ringmq*' --no-legend; ls /opt/ringmq /usr/local/bin/ringmq", status=2)
    assert "systemd" in machine.all_words()
    assert "ringmq.broker" not in machine.all_words()
    machine.run("ls /var/lib/ringmq/broker/default/commitlog /etc/ringmq/broker/default.conf")
    machine.run("/tmp-install/install purge; ls /var/lib/ringmq", status=2)
