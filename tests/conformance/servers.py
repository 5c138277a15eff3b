"""Name server and broker, RingMQ's or stock, behind one interface for the tests of this folder."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil

from ringmq.loadtest.load.program import Program
from ringmq.loadtest.load.running import remove_shared_memory, wait_ended
from ringmq.loadtest.stock import StockError, StockServer, free_broker_port, free_port, start_broker, start_namesrv
from tests.commands import RINGMQ

BROKER_NAME = "judged"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# Small files, so that every test store crosses file ends; both kinds of server get the same.
# Stock's own default; the helper that starts it prefers the binary header.
JSON_HEADERS = ("-Drocketmq.serialize.type=JSON",)
SMALL_FILES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


class Server(Protocol):
    """A name server with one broker under it."""

    kind: str
    namesrv: str
    broker: str
    store: Path

    def stop(self) -> None:
        """Clean stop."""

    def kill(self) -> None:
        """kill -9 of every process; what a restart finds stays."""

    def close(self) -> None:
        """kill -9, and nothing stays but the store."""


class RingmqProcess:
    """One `ringmq` server command and all processes that it started."""

    def __init__(self, home: Path, *args: str, program: Path | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.command = [*RINGMQ, *args] if program is None else [str(program), *args]
        self._errors = (home / "stderr.txt").open("ab")
        self.process = Program(
            self.command, cwd=home, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._wait_ready()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise AssertionError(f"{self.command} was not ready in {READY_TIMEOUT_S} s\n{self.tail()}") from None
            if line is None:
                self.process.wait()
                raise AssertionError(f"{self.command} ended: status {self.process.returncode}\n{self.tail()}")
            if b"ready" in line:
                return

    def tail(self, size: int = 4000) -> str:
        """The last that it wrote to stderr."""
        return (self.home / "stderr.txt").read_text(errors="replace")[-size:]

    def stop(self) -> None:
        """SIGTERM; the exit status must be 0."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.command} did not stop in {STOP_TIMEOUT_S} s\n{self.tail()}") from None
        self._errors.close()
        assert self.process.returncode == 0, f"status {self.process.returncode} after SIGTERM\n{self.tail()}"

    def kill(self) -> None:
        """kill -9 of the process and all its descendants at one go."""
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            parent = psutil.Process(self.process.pid)
            everyone = [parent, *parent.children(recursive=True)]
            for one in everyone:
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            wait_ended(everyone[1:])
        self.process.wait()
        self._errors.close()


def settings_args(settings: Mapping[str, Any]) -> list[str]:
    """`--set name=value` for each setting."""
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in settings.items()}
    return [part for name, value in texts.items() for part in ("--set", f"{name}={value}")]


class RingmqServer:
    """`ringmq serve`: name server and broker in one command."""

    kind = "ringmq"

    def __init__(self, home: Path, settings: Mapping[str, Any], store: Path | None = None) -> None:
        port, namesrv_port = free_broker_port(), free_port()
        self.namesrv = f"127.0.0.1:{namesrv_port}"
        self.broker = f"127.0.0.1:{port}"
        self.store = store or home / "store"
        given = {"brokerName": BROKER_NAME, "brokerIP1": "127.0.0.1", **settings}
        ports = ["--port", str(port), "--namesrv-port", str(namesrv_port)]
        self._home = home / "ringmq"
        self._args = ["serve", "--store", str(self.store), *ports, *settings_args(given)]
        self._process = RingmqProcess(self._home, *self._args)

    def stop(self) -> None:
        """Clean stop."""
        self._process.stop()

    def kill(self) -> None:
        """kill -9 of every process."""
        self._process.kill()

    def close(self) -> None:
        """kill -9, and nothing stays but the store."""
        self.kill()
        remove_shared_memory(self.store)

    def restart(self) -> None:
        """Start again on the same ports and store, after a stop or a kill."""
        self._process = RingmqProcess(self._home, *self._args)


class StockPair:
    """A stock name server with a stock broker."""

    kind = "stock"

    def __init__(self, home: Path, settings: Mapping[str, Any], store: Path | None = None) -> None:
        self._namesrv, self.namesrv = self._start_namesrv(home / "namesrv")
        self.store = store or home / "store"
        given = {"brokerName": BROKER_NAME, **settings}
        options: dict[str, Any] = {"store": self.store, "namesrv": self.namesrv, "jvm": JSON_HEADERS}
        try:
            self._broker = start_broker(given, home=home / "broker", **options)
        except StockError:
            self._namesrv.kill()
            raise
        self.broker = self._broker.address

    @staticmethod
    def _start_namesrv(home: Path) -> "tuple[StockServer | RingmqProcess, str]":
        """The name server and its address."""
        namesrv = start_namesrv(home=home, jvm=JSON_HEADERS)
        return namesrv, namesrv.address

    def stop(self) -> None:
        """Clean stop."""
        self._broker.stop()
        self._namesrv.stop()

    def kill(self) -> None:
        """kill -9 of both processes."""
        self._broker.kill()
        self._namesrv.kill()

    def close(self) -> None:
        """A stock broker leaves nothing outside its store."""
        self.kill()


class StockBroker(StockPair):
    """A stock broker under a RingMQ name server, for tests about a store. A stock name server takes as much processor
    time for its start as half a broker."""

    @staticmethod
    def _start_namesrv(home: Path) -> tuple[StockServer | RingmqProcess, str]:
        port = free_port()
        return RingmqProcess(home, "namesrv", "--port", str(port)), f"127.0.0.1:{port}"


KINDS = {"ringmq": RingmqServer, "stock": StockPair, "stock-broker": StockBroker}


def start(kind: str, home: Path, settings: Mapping[str, Any] = SMALL_FILES, store: Path | None = None) -> Server:
    """Start a server of `kind` (one of KINDS) and wait until its broker serves."""
    return KINDS[kind](home, settings, store)
