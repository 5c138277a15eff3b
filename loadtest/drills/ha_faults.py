"""The faults of a replication drill: a seeded plan, and the code that carries it out."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ringmq.client import RingmqError
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.ha_group import HaGroup, Node
from ringmq.loadtest.drills.ha_load import HaLoad
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.ha_bodies import ADOPT, HaStatus

WORKERS = ("read-0", "write", "flush", "dispatch", "control", "ha")
ROUND_TIMEOUT_S = 60.0
ASK_TIMEOUT_MS = 10_000

WEIGHTS = {
    "kill master worker": 14,
    "kill slave worker": 14,
    "kill HA writer": 8,
    "kill HA client": 8,
    "kill master": 6,
    "kill slave": 6,
    "kill both": 4,
    "stop HA writer": 6,
    "stop HA client": 6,
    "stop slave": 6,
    "slave loses tail": 5,
    "master loses tail": 5,
    "junk": 6,
    "lies": 6,
    "same id": 4,
    "partition": 6,
    "partition to slave": 5,
    "partition to master": 5,
    "half-open": 4,
    "disk full": 3,
    "disk read-only": 3,
}
NEEDS_NETWORK = ("partition", "partition to slave", "partition to master", "half-open")
NEEDS_DISK = ("disk full", "disk read-only")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its kind, the worker that it hits, its duration, the number of lost bytes."""

    kind: str
    worker: str = ""
    span_s: float = 0.0
    lost_bytes: int = 0


def plan_faults(seed: int, count: int, kinds: tuple[str, ...] = tuple(WEIGHTS)) -> list[Fault]:
    """Return a seeded plan with every kind once in its first `len(kinds)` rounds, then by weight."""
    dice = random.Random(seed)
    order = dice.sample(kinds, len(kinds))
    order += dice.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=max(0, count - len(order)))
    plan = []
    for kind in order[:count]:
        worker = dice.choice(WORKERS)
        plan.append(Fault(kind, worker, dice.uniform(0.2, 2.5), dice.randrange(1, 200_000)))
    return plan


class FaultInjector:
    """Injects faults. Each ends with the group as it was."""

    def __init__(self, group: HaGroup, load: HaLoad, spare_folder: Path, disk: Path | None, seed: int) -> None:
        self._group = group
        self._load = load
        self._spare_folder = spare_folder
        self._disk = disk
        self._dice = random.Random(seed)
        self._client = RemotingClient()
        self._handlers: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "kill master worker": lambda fault: self._kill_worker(group.master, fault.worker),
            "kill slave worker": lambda fault: self._kill_worker(group.slaves[0], fault.worker),
            "kill HA writer": lambda fault: self._kill_worker(group.master, "ha"),
            "kill HA client": lambda fault: self._kill_worker(group.slaves[0], "ha"),
            "kill master": lambda fault: self._kill([group.master]),
            "kill slave": lambda fault: self._kill([group.slaves[0]]),
            "kill both": lambda fault: self._kill([group.master, group.slaves[0]]),
            "stop HA writer": lambda fault: self._stop(self._worker(group.master, "ha"), fault.span_s),
            "stop HA client": lambda fault: self._stop(self._worker(group.slaves[0], "ha"), fault.span_s),
            "stop slave": lambda fault: self._stop(group.slaves[0].everybody(), fault.span_s),
            "slave loses tail": self._slave_loses_tail,
            "master loses tail": self._master_loses_tail,
            "junk": self._junk,
            "lies": self._lies,
            "same id": self._same_id,
            "partition": self._partition,
            "partition to slave": self._partition,
            "partition to master": self._partition,
            "half-open": self._half_open,
            "disk full": self._disk_full,
            "disk read-only": self._disk_read_only,
        }

    async def inject(self, fault: Fault) -> None:
        """Return when the process runs again. The service may need some more time."""
        await self._handlers[fault.kind](fault)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    # ---- processes -------------------------------------------------------------------------------------------

    @staticmethod
    def _worker(node: Node, name: str) -> list[int]:
        pid = node.broker.worker_pids().get(name)
        return [] if pid is None else [pid]

    async def _kill_worker(self, node: Node, name: str) -> None:
        node.broker.signal_worker(name, signal.SIGKILL)

    async def _kill(self, nodes: list[Node]) -> None:
        for node in nodes:
            await asyncio.to_thread(node.kill)
        for node in nodes:
            await asyncio.to_thread(node.start)

    async def _stop(self, pids: list[int], span_s: float) -> None:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        await asyncio.sleep(span_s)
        for pid in pids:
            _signal(pid, signal.SIGCONT)

    # ---- files -----------------------------------------------------------------------------------------------

    async def _slave_loses_tail(self, fault: Fault) -> None:
        slave = self._group.slaves[0]
        await asyncio.to_thread(slave.kill)
        await self._load.sends_end(ROUND_TIMEOUT_S)  # none is acknowledged late that the slave held
        await asyncio.to_thread(slave.lose_tail, fault.lost_bytes)
        await asyncio.to_thread(slave.start)

    async def _master_loses_tail(self, fault: Fault) -> None:
        """Let the slave have more than its master: the slave is held until the operator adopts its log."""
        master = self._group.master
        await asyncio.to_thread(master.kill)
        await asyncio.to_thread(master.lose_tail, fault.lost_bytes)
        await asyncio.to_thread(master.start)
        async with asyncio.timeout(ROUND_TIMEOUT_S):
            while True:
                with contextlib.suppress(RingmqError, OSError):
                    status = await self.status()
                    if status.divergences:
                        await self._decide(status.divergences[0].broker_id)
                    elif any(slave.in_sync and slave.counts for slave in status.slaves):
                        return
                await asyncio.sleep(0.1)  # poll

    async def status(self) -> HaStatus:
        """Return the master's report about its group."""
        address = self._group.master.broker.address
        answer = await self._client.call(address, RequestCode.HA_STATUS, {}, timeout_ms=ASK_TIMEOUT_MS)
        return HaStatus.decode(answer.body)

    async def degraded_mode_ends(self, timeout_s: float) -> bool:
        """True if the master leaves degraded mode in time. A slave's report follows its write a little later."""
        deadline = time.monotonic() + timeout_s
        while (await self.status()).is_degraded:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)  # poll
        return True

    async def _decide(self, broker_id: int) -> None:
        header = {"brokerId": str(broker_id), "choice": ADOPT}
        address = self._group.master.broker.address
        await self._client.call(address, RequestCode.HA_DECIDE, header, timeout_ms=ASK_TIMEOUT_MS)

    async def _disk_full(self, fault: Fault) -> None:
        """Fill the slave's disk for a while."""
        assert self._disk is not None
        ballast = self._disk / "ballast"
        await asyncio.to_thread(_fill, ballast)
        await asyncio.sleep(4 * fault.span_s)
        ballast.unlink()

    async def _disk_read_only(self, fault: Fault) -> None:
        """Check that a slave with a read-only store does not start and names the reason, and later starts."""
        assert self._disk is not None
        slave = self._group.slaves[0]
        await asyncio.to_thread(slave.kill)
        await _run("mount", "-o", "remount,ro", str(self._disk))
        try:
            await asyncio.to_thread(slave.start)
        except RuntimeError as error:
            if "ended with status" not in str(error):
                raise
        else:
            raise RuntimeError("a slave started on a store that is read-only")
        finally:
            await _run("mount", "-o", "remount,rw", str(self._disk))
        await asyncio.to_thread(slave.start)

    # ---- other peers -----------------------------------------------------------------------------------------

    async def _junk(self, fault: Fault) -> None:
        """Send random bytes, and ends in the middle of a report."""
        for _ in range(20):
            length = self._dice.randrange(1, 4096)
            await asyncio.to_thread(_send_parts, self._group.ha_address, [self._dice.randbytes(length)], 0.02)

    async def _lies(self, fault: Fault) -> None:
        """Send false reports: bytes never sent, steps back, a new slave that claims everything and stores nothing."""
        status = await self.status()
        end = status.append_offset
        for reports in ([0, end + 10_000_000], [end, end - 1], [end, end + (1 << 40)], [0, -1], [1 << 62]):
            await asyncio.to_thread(
                _send_parts, self._group.ha_address, [struct.pack(">q", value) for value in reports], 0.1
            )
        await asyncio.to_thread(_claim_everything, self._group.ha_address, fault.span_s)

    async def _same_id(self, fault: Fault) -> None:
        """Start a second slave with the first one's id, from empty. They count as one."""
        twin = await asyncio.to_thread(self._group.new_slave, self._spare_folder / "twin", 1)
        self._load.holders.append(twin)
        try:
            await asyncio.sleep(2 * fault.span_s)
        finally:
            await asyncio.to_thread(twin.kill)
            await self._load.sends_end(ROUND_TIMEOUT_S)  # none is acknowledged late that the slave held
            self._load.holders.remove(twin)
            twin.close()

    # ---- the network -----------------------------------------------------------------------------------------

    async def _partition(self, fault: Fault) -> None:
        network = self._group.network
        assert network is not None
        way = fault.kind.removeprefix("partition").strip().replace(" ", "_") or "both"
        await asyncio.to_thread(network.part, way)  # type: ignore[arg-type]
        await asyncio.sleep(2 * fault.span_s)
        await asyncio.to_thread(network.heal)

    async def _half_open(self, fault: Fault) -> None:
        """Kill the slave without a sign to its master: a new connection comes while the old one is still open."""
        network, slave = self._group.network, self._group.slaves[0]
        assert network is not None
        for peer in (await self.status()).slaves:
            await asyncio.to_thread(network.silence, int(peer.address.rpartition(":")[2]))
        await self._kill([slave])
        await self._load.service(ROUND_TIMEOUT_S)
        await asyncio.to_thread(network.heal)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _send_parts(address: tuple[str, int], parts: list[bytes], pause_s: float) -> None:
    """Connect to the HA port, send each part, and read for `pause_s` after each. The peer may close."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=2) as peer:
        for part in parts:
            peer.sendall(part)
            peer.settimeout(pause_s)
            with contextlib.suppress(TimeoutError):
                peer.recv(1 << 16)


def _claim_everything(address: tuple[str, int], span_s: float) -> None:
    """Run an empty slave that reports the end of each transfer at once and stores nothing."""
    with contextlib.suppress(OSError, struct.error), socket.create_connection(address, timeout=span_s) as peer:
        stream = peer.makefile("rb")
        peer.sendall(struct.pack(">q", 0))
        deadline = time.monotonic() + span_s
        while time.monotonic() < deadline:
            offset, size = struct.unpack(">qi", stream.read(12))
            stream.read(size)
            peer.sendall(struct.pack(">q", offset + size))


def _fill(ballast: Path) -> None:
    """Fill the file system."""
    with ballast.open("wb") as file:
        status = os.statvfs(ballast.parent)
        free = status.f_bavail * status.f_frsize
        while free >= 4096:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free)
            except OSError:
                free //= 2


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait() != 0:
        raise OSError(f"{' '.join(command)}: status {process.returncode}")
