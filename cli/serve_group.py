"""`ringmq serve --slaves N`: a master with a name server and its slaves on this machine, each broker its own process.

start master -> its `ready` names the name server -> start slaves -> all ready: one `ready` line
one signal, or the end of any broker -> the master ends, then its slaves
"""

from __future__ import annotations

import asyncio
import ctypes
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

from ringmq.cli.output import say

STOP_TIMEOUT_S = 60.0
_PR_SET_PDEATHSIG = 1
_NAME_SERVER = re.compile(r"name server on (\S+:\d+)")
_BROKER = re.compile(r"ready: broker \S+ on (\S+:\d+)")


class GroupError(RuntimeError):
    """A broker of the group did not start and has printed the reason itself. `status` is its exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def slave_store(store: Path, broker_id: int) -> Path:
    """Return the path of a slave's store, beside its master's."""
    return store.with_name(f"{store.name}-slave-{broker_id}")


def run_group(master: Sequence[str], slaves: Sequence[Sequence[str]]) -> int:
    """Run `ringmq` with these arguments, the slaves with `--namesrv` added. Return the exit status of the group."""
    return asyncio.run(_run(master, slaves))


async def _run(master: Sequence[str], slaves: Sequence[Sequence[str]]) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    brokers: list[Process] = []
    try:
        brokers.append(await _start(master))
        told = await _ready(brokers[0], stop)
        found = _NAME_SERVER.search(told)
        addresses = []
        for arguments in slaves if found else ():
            assert found is not None
            brokers.append(await _start([*arguments, "--namesrv", found[1]]))
        for slave in brokers[1:]:
            ready = _BROKER.search(await _ready(slave, stop))
            addresses += [ready[1]] if ready else []
        if not stop.is_set():
            say(f"{told}, slaves on {', '.join(addresses)}")
            await _until_one_ends(brokers, stop)
    except GroupError as error:
        say(f"Error: {error}", err=True)
        await _end(brokers)
        return error.status
    statuses = await _end(brokers)
    return next((status for status in statuses if status), 0)


async def _start(arguments: Sequence[str]) -> Process:
    """Start a broker in its own session: Ctrl-C reaches the parent alone, which stops the group in order."""
    prctl = ctypes.CDLL(None).prctl
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ringmq.cli.main", *arguments, stdout=PIPE, start_new_session=True,
        preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
    )  # fmt: skip


async def _ready(broker: Process, stop: asyncio.Event) -> str:
    """Return the line with `ready`, empty if a stop is requested before."""
    assert broker.stdout is not None
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while True:
            reading = asyncio.ensure_future(broker.stdout.readline())
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return ""
            line = reading.result().decode(errors="replace").rstrip()
            if not reading.result():
                status = await broker.wait()
                raise GroupError(f"a broker of the group ended with status {status} before it was ready", status or 1)
            if "ready: " in line:
                return line
    finally:
        stopping.cancel()


async def _until_one_ends(brokers: Sequence[Process], stop: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(broker.wait()) for broker in brokers]
    waits_for_stop = asyncio.ensure_future(stop.wait())
    await asyncio.wait({*waits, waits_for_stop}, return_when=asyncio.FIRST_COMPLETED)
    for wait in (*waits, waits_for_stop):
        wait.cancel()


async def _end(brokers: Sequence[Process]) -> list[int]:
    """Stop the master first, so that its last messages still reach the slaves. Return the exit statuses."""
    statuses = []
    for broker in brokers:
        if broker.returncode is None:
            broker.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                statuses.append(await broker.wait())
        except TimeoutError:
            broker.kill()
            statuses.append(await broker.wait())
    return statuses
