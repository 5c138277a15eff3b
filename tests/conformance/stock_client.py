"""The stock Java client as a child process: operations by JSON lines, see java/StockClient.java."""

import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ringmq.loadtest.stock import compile_java, java_command

SOURCES = sorted(Path(__file__).with_name("java").glob("*.java"))
HEAP_MB = 512


class StockClientError(AssertionError):
    """An operation threw in the stock client; the text is its Java stack trace."""


class StockClient:
    """One Java process with the stock client. Operations run side by side, each with clients of its own."""

    def __init__(self, home: Path, jvm: Sequence[str]) -> None:
        classes = compile_java(SOURCES, "conformance")
        command = java_command("StockClient", home=home, heap_mb=HEAP_MB, jvm=jvm, classpath=[classes])
        self._errors = (home / "stderr.txt").open("wb")
        self._process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._pending: dict[int, Future[Any]] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def submit(self, operation: str, namesrv: str, **args: Any) -> "Future[Any]":
        """Start `operation` against the brokers of `namesrv` and return its future result."""
        request = {"id": next(self._ids), "op": operation, "namesrv": namesrv, "args": args}
        future: Future[Any] = Future()
        with self._lock:
            self._pending[request["id"]] = future
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return future

    def call(self, operation: str, namesrv: str, timeout_s: float = 240.0, **args: Any) -> Any:
        """Run `operation` and return its result."""
        return self.submit(operation, namesrv, **args).result(timeout_s)

    def close(self) -> None:
        """End the process; what still runs in it fails."""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._pending.pop(answer["id"])
            if "error" in answer:
                future.set_exception(StockClientError(answer["error"]))
            else:
                future.set_result(answer["result"])
        for future in self._pending.values():
            future.set_exception(StockClientError(f"the stock client ended; see {self._errors.name}"))
