"""Names of files that users give."""

from __future__ import annotations

from pathlib import Path


def expanded(path: str | Path, what: str) -> Path:
    """The path with `~` and `~user` replaced. Raises ValueError that calls the file `what`: nobody has that name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{what} {path}: {Path(path).parts[0]} is nobody's home") from None
