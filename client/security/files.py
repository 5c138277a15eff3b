"""Names of files from users."""

from __future__ import annotations

from pathlib import Path


def expanded(path: str | Path, what: str) -> Path:
    """Return the path with `~` and `~user` replaced.

    Raises ValueError that names the file as `what` for an unknown user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{what} {path}: {Path(path).parts[0]} is nobody's home") from None
