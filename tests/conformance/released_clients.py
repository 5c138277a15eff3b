"""Released clients of RocketMQ as child processes: the programs in released/ print what a client saw."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ringmq.loadtest.stock.java import cache_dir, client_classpath, compile_java, java_command

HERE = Path(__file__).with_name("released")
JAVA_VERSION = "4.9.8"
GO_VERSION = "2.1.2"
GO_FOLDERS = ("/usr/local/go/bin",)
"""Go's own archive puts it there, which is on few PATHs."""


def go_tool() -> str | None:
    """The `go` command. None = not installed."""
    return shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), *GO_FOLDERS]))


def java_client(home: Path) -> list[str]:
    """The command of java/ReleasedClient.java, compiled once."""
    libraries = client_classpath(JAVA_VERSION)
    classes = compile_java([HERE / "java" / "ReleasedClient.java"], "released", libraries)
    jvm = ("-Drocketmq.client.rebalance.waitInterval=500",)
    return java_command("ReleasedClient", home=home, jvm=jvm, classpath=[classes], libraries=libraries)


def go_client(home: Path) -> list[str]:
    """The command of go/main.go, built once for each state of its sources."""
    home.mkdir(parents=True, exist_ok=True)
    go = go_tool()
    assert go is not None
    sources = b"".join((HERE / "go" / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    program = cache_dir() / f"go-released-{hashlib.sha256(sources).hexdigest()[:12]}"
    with (cache_dir() / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            part = program.with_suffix(".part")
            environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
            done = subprocess.run(
                [go, "build", "-o", str(part), "."], cwd=HERE / "go", env=environment, capture_output=True, text=True,
                timeout=280,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-2000:]
            part.rename(program)
    return [str(program)]


CLIENTS: dict[str, Callable[[Path], list[str]]] = {f"java-{JAVA_VERSION}": java_client, f"go-{GO_VERSION}": go_client}
