"""Environments of Python with a published client, made once into the cache."""

import fcntl
import shutil
import subprocess
import venv
from pathlib import Path

from ringmq.loadtest.load.tools import ToolError
from ringmq.loadtest.stock.java import cache_dir

INSTALL_TIMEOUT_S = 600


def python_with(requirement: str) -> Path:
    """Return the Python of an environment with `requirement`, such as "rocketmq==0.4.4". Raises `ToolError`."""
    folder = cache_dir() / requirement.replace("==", "-")
    python, ready = folder / "bin" / "python", folder / ".ready"
    with (cache_dir() / "peer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", requirement]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise ToolError(f"{requirement} is not installed within {INSTALL_TIMEOUT_S} s") from None
            if done.returncode != 0:
                raise ToolError(f"{requirement} could not be installed into {folder}:\n{done.stderr[-1000:]}")
            ready.touch()
    return python
