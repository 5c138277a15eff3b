"""Activity of the whole machine between two looks: disk writes and their wait, bytes over the loopback."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

SECTOR_BYTES = 512


@dataclass(frozen=True)
class MachineStats:
    """Counters since the machine started. `disk_*` are 0 if the folder is on no block device."""

    at_s: float
    disk_writes: int
    disk_bytes: int
    disk_wait_ms: int  # sum over all writes
    io_wait_s: float  # of all CPUs
    loopback_bytes: int

    def until(self, later: "MachineStats") -> dict[str, float]:
        """Return rates up to `later`: MB/s written, ms per write, share of a CPU that waited, MB/s of loopback."""
        seconds = max(later.at_s - self.at_s, 1e-9)
        writes = later.disk_writes - self.disk_writes
        return {
            "disk_mb_per_s": (later.disk_bytes - self.disk_bytes) / 1e6 / seconds,
            "disk_wait_ms": (later.disk_wait_ms - self.disk_wait_ms) / writes if writes else 0.0,
            "io_wait_cpu": (later.io_wait_s - self.io_wait_s) / seconds,
            "loopback_mb_per_s": (later.loopback_bytes - self.loopback_bytes) / 1e6 / seconds,
        }


def machine_stats(folder: Path) -> MachineStats:
    """Return the current counters. The disk is the one with `folder`."""
    writes, sectors, wait_ms = disk_counters(Path("/proc/diskstats").read_text(), folder.stat().st_dev)
    cpu = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    io_wait_s = int(cpu[5]) / os.sysconf("SC_CLK_TCK")
    loopback = loopback_counter(Path("/proc/net/dev").read_text())
    return MachineStats(time.monotonic(), writes, sectors * SECTOR_BYTES, wait_ms, io_wait_s, loopback)


def disk_counters(diskstats: str, device: int) -> tuple[int, int, int]:
    """Return writes completed, sectors written and ms spent writing of a device, from the text of /proc/diskstats."""
    for line in diskstats.splitlines():
        words = line.split()
        if (int(words[0]), int(words[1])) == (os.major(device), os.minor(device)):
            return int(words[7]), int(words[9]), int(words[10])
    return 0, 0, 0


def loopback_counter(net_dev: str) -> int:
    """Return the bytes of the loopback device, from the text of /proc/net/dev."""
    for line in net_dev.splitlines():
        name, _, counters = line.strip().partition(":")
        if name == "lo":
            return int(counters.split()[0])
    return 0
