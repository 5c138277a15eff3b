"""A private broker for an example: starts `ringmq serve` on a store folder, waits for it and stops it cleanly."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

READY = re.compile(r"ready: .*name server on (\S+),")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class ServeError(Exception):
    """`ringmq serve` did not start, ended too early or did not stop. The message carries its output."""


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """Run `ringmq serve` on `store`, yield the name server's address, then stop cleanly. Raises `ServeError`."""
    ringmq = Path(sys.executable).with_name("ringmq")
    command = [
        str(ringmq if ringmq.exists() else shutil.which("ringmq") or "ringmq"),
        *("serve", "--store", str(store), "--port", "0", "--namesrv-port", "0"),
        *("--set", "brokerIP1=127.0.0.1", "--set", "bindAddress=127.0.0.1"),
    ]
    with tempfile.TemporaryFile() as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield _wait_ready(server, output)
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
            try:
                status = server.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
                raise ServeError(f"ringmq serve did not stop within {STOP_TIMEOUT_S:.0f} s of SIGTERM") from None
        if status != 0:
            raise ServeError(f"ringmq serve ended with status {status}:\n{_text_of(output)}")


@contextmanager
def store_and_broker(store: Path | None, namesrv: str | None) -> Iterator[tuple[Path, str]]:
    """Yield the store's folder and the name server's address.

    With `namesrv` these are the running broker's. Otherwise a broker is started on `store`, or on a temporary folder.
    """
    if namesrv is not None:
        if store is None:
            raise ServeError("a running broker needs its store folder too: Spark reads the broker's files")
        yield store.absolute(), namesrv
        return
    scratch = None if store else tempfile.mkdtemp(prefix="ringmq-run-")
    folder = (store or Path(scratch or "") / "store").absolute()
    try:
        with serving(folder) as address:
            yield folder, address
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _text_of(output: BinaryIO) -> str:
    return os.pread(output.fileno(), 1 << 20, 0).decode("utf-8", "replace")


def _wait_ready(server: subprocess.Popen[bytes], output: BinaryIO) -> str:
    """Wait for the line that says `ready`, and return the name server's address in it."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (ready := READY.search(_text_of(output))):
        if server.poll() is not None:
            raise ServeError(f"ringmq serve ended with status {server.returncode}:\n{_text_of(output)}")
        if time.monotonic() > deadline:
            raise ServeError(f"ringmq serve was not ready within {START_TIMEOUT_S:.0f} s:\n{_text_of(output)}")
        time.sleep(0.02)
    return ready[1]
