"""Stock name server and broker as child processes on the loopback."""

import atexit
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringmq.loadtest.stock.java import StockError, java_command
from ringmq.loadtest.stock.ports import free_broker_port, free_port

NAMESRV_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
GET_BROKER_CLUSTER_INFO = 106
READY_LINE = "boot success"
READY_TIMEOUT_S = 180.0
"""Far beyond what a virtual machine needs beside others on a busy machine."""
ASK_TIMEOUT_S = 60.0
_live: "weakref.WeakSet[StockServer]" = weakref.WeakSet()


@dataclass(eq=False)
class StockServer:
    """A running stock server. `output` holds its output, `home`/rocketmq.log its warnings."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    home: Path
    output: Path

    @property
    def pid(self) -> int:
        """Process id of the Java process."""
        return self.process.pid

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self.host}:{self.port}"

    def alive(self) -> bool:
        """True while the process runs."""
        return self.process.poll() is None

    def stop(self, timeout_s: float = 60.0) -> int:
        """End the process by SIGTERM and return the exit status. After `timeout_s` it is killed."""
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise StockError(f"{self.address} did not stop in {timeout_s} s\n{self.tail()}") from None
        _live.discard(self)
        return self.process.returncode

    def kill(self) -> None:
        """Kill by SIGKILL and reap."""
        if self.alive():
            self.process.kill()
        self.process.wait()
        _live.discard(self)

    def pause(self) -> None:
        """Stop by SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def tail(self, size: int = 2000) -> str:
        """Return the last characters of its output and of its log."""
        text = self.output.read_text(errors="replace")[-size:]
        log = self.home / "rocketmq.log"
        return text + (log.read_text(errors="replace")[-size:] if log.exists() else "")


def start_namesrv(
    port: int = 0,
    home: Path | None = None,
    *,
    properties: Mapping[str, str | int | bool] | None = None,
    heap_mb: int = 128,
    jvm: Sequence[str] = (),
    cpus: Sequence[int] | None = None,
    timeout_s: float = READY_TIMEOUT_S,
) -> StockServer:
    """Start a stock name server on 127.0.0.1:`port` (0: a free one) and wait until it serves."""
    home = _home(home, "namesrv")
    port = port or free_port()
    settings: dict[str, str | int | bool] = {
        "listenPort": port,
        "bindAddress": "127.0.0.1",
        "rocketmqHome": str(home),
        "kvConfigPath": str(home / "kvConfig.json"),
        **(properties or {}),
    }
    config = _write_properties(home / "namesrv.conf", settings)
    command = java_command(NAMESRV_MAIN, "-c", str(config), home=home, heap_mb=heap_mb, jvm=jvm)
    return start_java_server(command, port, home, cpus=cpus, timeout_s=timeout_s)


def start_broker(
    properties: Mapping[str, str | int | bool] | None = None,
    *,
    port: int = 0,
    home: Path | None = None,
    store: Path | None = None,
    namesrv: str | None = None,
    heap_mb: int = 512,
    jvm: Sequence[str] = (),
    cpus: Sequence[int] | None = None,
    timeout_s: float = READY_TIMEOUT_S,
) -> StockServer:
    """Start a stock broker on 127.0.0.1:`port` (0: a free one) and wait until it serves.

    `properties` are RocketMQ's own names and override the defaults here. `store` is storePathRootDir (default
    `home`/store). With `namesrv` ("host:port") it also waits until that name server lists the broker.
    """
    home = _home(home, "broker")
    given = dict(properties or {})
    port = int(given.pop("listenPort", port)) or free_broker_port()
    root = Path(str(given.pop("storePathRootDir", store or home / "store")))
    settings: dict[str, str | int | bool] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "stock",
        "brokerId": 0,
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "rocketmqHome": str(home),
        "storePathRootDir": str(root),
        "storePathCommitLog": str(root / "commitlog"),
        "diskMaxUsedSpaceRatio": 95,
        "autoCreateTopicEnable": True,
        "autoCreateSubscriptionGroup": True,
        **given,
        "listenPort": port,
    }
    if namesrv is not None:
        settings["namesrvAddr"] = namesrv
    config = _write_properties(home / "broker.conf", settings)
    direct = ("-XX:MaxDirectMemorySize=1g",)
    command = java_command(BROKER_MAIN, "-c", str(config), home=home, heap_mb=heap_mb, jvm=(*direct, *jvm))
    server = start_java_server(command, port, home, cpus=cpus, timeout_s=timeout_s)
    if namesrv is not None:
        with _killed_on_error(server):
            _wait_registered(server, namesrv, str(settings["brokerName"]), timeout_s)
    return server


def start_java_server(
    command: list[str],
    port: int,
    home: Path,
    *,
    ready_line: str = READY_LINE,
    cpus: Sequence[int] | None = None,
    timeout_s: float = READY_TIMEOUT_S,
) -> StockServer:
    """Start `command`, which serves on 127.0.0.1:`port`, and wait until its output has `ready_line`.

    Raises StockError if it ends before, or is not ready after `timeout_s`. It is killed then.
    """
    server = _start(command, port, home, cpus)
    with _killed_on_error(server):
        _wait_ready(server, ready_line, timeout_s)
    return server


def _home(home: Path | None, name: str) -> Path:
    if home is None:
        raise StockError(f"start of a stock {name} needs a `home` folder for its logs and files")
    home.mkdir(parents=True, exist_ok=True)
    return home.resolve()


def _write_properties(path: Path, settings: Mapping[str, str | int | bool]) -> Path:
    def text(value: str | int | bool) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    path.write_text("".join(f"{name}={text(value)}\n" for name, value in settings.items()))
    return path


def _start(command: list[str], port: int, home: Path, cpus: Sequence[int] | None) -> StockServer:
    output = home / f"output-{port}.txt"
    if cpus is not None:
        command = ["taskset", "-c", ",".join(map(str, cpus)), *command]
    with output.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = StockServer(process, "127.0.0.1", port, home, output)
    _live.add(server)
    return server


@contextlib.contextmanager
def _killed_on_error(server: StockServer) -> Iterator[None]:
    """A start that fails, or that a test's time limit interrupts, leaves no process."""
    try:
        yield
    except BaseException:
        server.kill()
        raise


def _wait_ready(server: StockServer, ready_line: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while ready_line not in server.output.read_text(errors="replace"):
        if not server.alive():
            raise StockError(f"stock server ended with status {server.process.returncode}\n{server.tail()}")
        if time.monotonic() > deadline:
            raise StockError(f"stock server on {server.address} was not ready in {timeout_s} s\n{server.tail()}")
        time.sleep(0.05)


def _wait_registered(server: StockServer, namesrv: str, broker_name: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while f'"{broker_name}"'.encode() not in _cluster_info(namesrv):
        if not server.alive() or time.monotonic() > deadline:
            raise StockError(f"{namesrv} does not list broker {broker_name} after {timeout_s} s\n{server.tail()}")
        time.sleep(0.1)


def _cluster_info(namesrv: str) -> bytes:
    """Return the body of the name server's cluster table, without ringmq.remoting: its faults must not matter."""
    host, port = namesrv.rsplit(":", 1)
    header = json.dumps(
        {"code": GET_BROKER_CLUSTER_INFO, "flag": 0, "language": "JAVA", "opaque": 1, "version": 479}
    ).encode()
    with socket.create_connection((host, int(port)), timeout=ASK_TIMEOUT_S) as sock:
        sock.sendall(struct.pack(">iI", 4 + len(header), len(header)) + header)
        stream = sock.makefile("rb")
        (length,) = struct.unpack(">i", stream.read(4))
        return stream.read(length)


@atexit.register
def _kill_leftovers() -> None:
    for server in list(_live):
        server.kill()
