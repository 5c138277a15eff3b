"""A Debian machine of its own: systemd booted by systemd-nspawn over an overlay of `/`. Needs root.

What is written inside stays in a folder of the test. The network is the machine's own (loopback); its processes are
also seen from outside, so a test may stop and kill them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import psutil

from ringmq.loadtest.load.running import worker_name
from tests.service.finished_core import compiler_of

ROOT = Path(__file__).parent.parent.parent
INSTALLED = ROOT / "build" / "service-root"
"""What `systemd/install` makes, kept between runs."""
BOOT_TIMEOUT_S = 60.0
LOOK_AFTER_S = 0.15
"""Between looks: each is some processes inside, which takes longer than a request to a broker."""
DISK = "/mnt/ringmq-disk"
WITH_CGROUPS = 'mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$@"'
"""A container's /sys may come without them."""


def why_not_here() -> str:
    """Why no machine can be booted here; empty when one can."""
    if os.geteuid() != 0:
        return "booting systemd-nspawn needs root"
    absent = [tool for tool in ("systemd-nspawn", "nsenter", "mount", "umount") if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (package systemd-container)"
    if not Path("/usr/bin/python3").exists() or not Path("/usr/lib/systemd/systemd").exists():
        return "this system has no systemd or no Python of its own"
    if subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode != 0:
        return "user namespaces, which the units' hardening uses, are refused here (as in a chroot)"
    return ""


def sources() -> list[Path]:
    """What the installed service is made of: nobody else removes it when one of them changes."""
    packages = sorted(path.parent for path in ROOT.glob("*/__init__.py"))
    folders = [ROOT / "systemd", ROOT / "packaging" / "ringmq", *packages]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    made = (".so", ".pyc", ".o", ".jar")
    found = [path for path in files if path.suffix not in made and path.name != "_native.c"]
    return [ROOT / "pyproject.toml", ROOT / "setup.py", *found]


def installed() -> Path:
    """A folder with RingMQ's service as `make install-service` stages it, made again when a source has changed."""
    core = find_spec("ringmq.native._native")
    assert core is not None and core.origin is not None
    digest = hashlib.sha256()
    for path in (*sources(), Path(core.origin)):
        digest.update(path.read_bytes())
    stamp = INSTALLED / ".digest"
    if not stamp.exists() or stamp.read_text() != digest.hexdigest():
        shutil.rmtree(INSTALLED, ignore_errors=True)
        INSTALLED.mkdir(parents=True)
        done = subprocess.run(
            [ROOT / "systemd" / "install", "install"],
            env={**os.environ, "DESTDIR": str(INSTALLED), "CC": compiler_of(Path(core.origin))},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        stamp.write_text(digest.hexdigest())
    return INSTALLED


class Machine:
    """Boot on entry, power off on exit. Every command is printed with what it said: the transcript."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self.root = folder / "root"
        self.disk = folder.with_name(f"{folder.name}-disk")
        """Seen inside as DISK: what lies there is on the machine's disk, all else in memory."""

    def __enter__(self) -> Machine:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3g", "ringmq-test", self._folder], check=True)
        try:
            self._mount_and_boot()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._tear_down()

    def _mount_and_boot(self) -> None:
        upper, work = self._folder / "upper", self._folder / "work"
        for folder in (upper, work, self.root, self.disk):
            folder.mkdir()
        shutil.copytree(installed(), upper, symlinks=True, dirs_exist_ok=True)  # layers must not lie in each other
        layers = f"lowerdir=/,upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, self.root], check=True)
        for name in ("machine-id", "hostname"):  # of its own: the journal must not be mixed with the host's
            (self.root / "etc" / name).unlink(missing_ok=True)
        (self.root / "etc" / "machine-id").write_text("5e1f7e57000000000000000000000001\n")
        shutil.rmtree(self.root / "var/log/journal", ignore_errors=True)
        command = ["unshare", "--mount", "sh", "-c", WITH_CGROUPS, "sh"]
        command += ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network"]
        command += [
            f"--bind={self.disk}:{DISK}",
            "--machine=ringmq-test",
            "--console=pipe",
            f"--directory={self.root}",
            "systemd.unit=basic.target",
        ]
        with (self._folder / "console").open("wb") as console:
            self._nspawn = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        self.wait(self._is_up, "the machine has booted", BOOT_TIMEOUT_S)
        # A boot does it after a change of /usr only.
        self.run("systemd-sysusers ringmq.conf && systemd-tmpfiles --create ringmq.conf", show=False)

    def _is_up(self) -> bool:
        assert self._nspawn is not None
        assert self._nspawn.poll() is None, (self._folder / "console").read_text(errors="replace")
        for child in psutil.Process(self._nspawn.pid).children():
            self._leader = child.pid
            state = self._inside("systemctl", "is-system-running").stdout.strip()
            return state in ("running", "degraded")
        return False

    def _tear_down(self) -> None:
        if self._nspawn is not None and self._nspawn.poll() is None:
            if self._leader:
                self._inside("systemctl", "poweroff")
            try:
                self._nspawn.wait(60)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait(60)
        for mounted in (self.root, self._folder):
            subprocess.run(["umount", "-l", mounted], check=False)
        shutil.rmtree(self.disk, ignore_errors=True)

    # ---- inside ----

    def _inside(self, *words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
        environment = {
            "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "SYSTEMD_PAGER": "cat",
        }
        return subprocess.run(
            [*enter, *words], capture_output=True, text=True, timeout=timeout_s, env=environment, errors="replace"
        )

    def run(self, command: str, *, status: int | None = 0, timeout_s: float = 120.0, show: bool = True) -> str:
        """What a shell command inside has said; AssertionError when it ends otherwise than with `status`."""
        done = self._inside("bash", "-c", command, timeout_s=timeout_s)
        said = (done.stdout + done.stderr).strip()
        if show:
            write_lines(
                f"# {command}",
                *said.splitlines()[-14:],
                *([f"(exit status {done.returncode})"] * bool(done.returncode)),
            )
        assert status is None or done.returncode == status, f"{command}: exit status {done.returncode}\n{said}"
        return said

    def python(self, module: str, *words: str) -> subprocess.Popen[str]:
        """A module of the tests, run outside but in the machine's network."""
        return self.outside(sys.executable, "-m", module, *words)

    def outside(self, *words: str) -> subprocess.Popen[str]:
        """A program of the host, run outside but in the machine's network."""
        command = ["nsenter", "-t", str(self._leader), "-n", *words]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def prop(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run(f"systemctl show -P {name} {unit}", show=False)

    def workers(self, unit: str) -> dict[str, psutil.Process]:
        """Processes of a service as seen from outside, by the workers' names; the main one is `main`."""
        main = int(self.prop(unit, "MainPID"))
        found = {}
        for process in psutil.Process(self._leader).children():
            with contextlib.suppress(psutil.Error, FileNotFoundError, IndexError, ValueError):
                numbers = Path(f"/proc/{process.pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split()
                if int(numbers[-1]) != main:
                    continue
                found["main"] = process
                for child in process.children():
                    if name := worker_name(child.cmdline()):
                        found[name] = child
        return found

    def all_words(self) -> str:
        """The command lines of everything that runs inside."""
        lines = []
        for process in psutil.Process(self._leader).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
        return "\n".join(lines)

    def journal(self, unit: str, *, lines: int = 400) -> str:
        """What the unit has said, and systemd about it."""
        self.run("journalctl --sync", show=False)
        return self.run(f"journalctl -u {unit} -o cat -n {lines}", show=False)

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> float:
        """Seconds until `condition()` is true; AssertionError naming `what` when it takes too long."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < timeout_s, f"not within {timeout_s:.0f} s: {what}"
            time.sleep(LOOK_AFTER_S)  # poll
        return time.monotonic() - began

    def wait_active(self, unit: str, timeout_s: float = 60.0) -> float:
        """Wait until the unit is ready."""
        return self.wait(lambda: self.prop(unit, "ActiveState") == "active", f"{unit} is active", timeout_s)


def write_lines(*lines: str) -> None:
    """Write lines to the transcript."""
    for line in lines:
        print(f"    {line[:180]}", flush=True)
