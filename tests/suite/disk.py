"""Space on the disk that the suite needs: stores of brokers stand below pytest's temporary folder while a run lasts.

A broker refuses sends on a full disk. Without this look many tests fail at once, each with another message.
"""

import os
import shutil
import tempfile
from pathlib import Path

NEEDED_GB = 15.0
GB = 1e9


def temporary_folder() -> Path:
    """Where pytest makes its numbered folders."""
    return Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())


def missing_disk(folder: Path, needed_gb: float = NEEDED_GB) -> str:
    """Say what the disk of `folder` lacks and what to do, "" for nothing."""
    free_gb = shutil.disk_usage(folder).free / GB
    if free_gb >= needed_gb:
        return ""
    kept = sorted(str(path) for path in folder.glob("pytest-of-*"))
    old = f"remove stores of earlier runs ({', '.join(kept)})" if kept else "free some"
    return f"needs {needed_gb:g} GB of disk below {folder}, found {free_gb:.1f}: {old}, or set TMPDIR to another disk"
