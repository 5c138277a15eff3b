"""Two network namespaces on one wire, the master's (this process's) and the slaves'. Packet filter rules part them.

Needs root, or a kernel that lets users make namespaces, and `ip`, `nsenter`, `unshare` and `nft`. All of it ends with
this process and the one that holds the other namespace.
"""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

MASTER_HOST = "10.88.0.1"
SLAVE_HOST = "10.88.0.2"
_CLONE_NEWNET = 0x40000000
_TOOLS = ("ip", "nsenter", "unshare", "nft")

Way = Literal["both", "to_slave", "to_master"]

_DROP = {
    "to_slave": 'chain in { type filter hook input priority 0; iifname "drill1" drop; }',
    "to_master": 'chain out { type filter hook output priority 0; oifname "drill1" drop; }',
}


def missing_for_network() -> str:
    """Return the reason why no namespaces can be made here, empty if they can."""
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "network namespaces need root"


class Network:
    """Makes both namespaces. The master's side is this process, which may have one thread only, and its children."""

    def __init__(self) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace can be made")
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        self.slave_prefix = ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net")
        """Prefix of a command that runs on the slaves' side."""
        self._wait_for_holder()
        _run(
            "ip",
            "link",
            "add",
            "name",
            "drill0",
            "type",
            "veth",
            "peer",
            "name",
            "drill1",
            "netns",
            str(self._holder.pid),
        )
        for prefix, name, host in (((), "drill0", MASTER_HOST), (self.slave_prefix, "drill1", SLAVE_HOST)):
            _run(*prefix, "ip", "address", "add", f"{host}/24", "dev", name)
            _run(*prefix, "ip", "link", "set", name, "up")
            _run(*prefix, "ip", "link", "set", "lo", "up")

    def _wait_for_holder(self) -> None:
        """Wait until the holder has left this namespace."""
        ours, theirs = Path("/proc/self/ns/net").readlink(), Path(f"/proc/{self._holder.pid}/ns/net")
        while theirs.readlink() == ours:
            if self._holder.poll() is not None:
                raise OSError(f"unshare --net ended with status {self._holder.returncode}")

    def part(self, way: Way) -> None:
        """Drop every packet in one direction or both, without a sign to either side."""
        ways = ("to_slave", "to_master") if way == "both" else (way,)
        rules = "\n".join(_DROP[one] for one in ways)
        _run(*self.slave_prefix, "nft", "-f", "-", text=f"table inet drill {{\n{rules}\n}}\n")

    def silence(self, port: int) -> None:
        """Drop every packet of one connection of the slaves' side, as if the other end's host had died."""
        rules = (
            f'chain in {{ type filter hook input priority 0; iifname "drill1" tcp dport {port} drop; }}\n'
            f'chain out {{ type filter hook output priority 0; oifname "drill1" tcp sport {port} drop; }}'
        )
        _run(*self.slave_prefix, "nft", "-f", "-", text=f"table inet drill {{\n{rules}\n}}\n")

    def heal(self) -> None:
        """Let packets pass again."""
        _run(*self.slave_prefix, "nft", "-f", "-", text="add table inet drill\ndelete table inet drill\n")

    def close(self) -> None:
        """End the slaves' side. Remaining processes there lose their network."""
        self._holder.kill()
        self._holder.wait()


def _run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
