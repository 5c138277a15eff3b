"""Which descriptors of another process are open on a file."""

from pathlib import Path


def descriptors_of(pid: int, target: Path) -> list[int]:
    """Their numbers; the process may close others meanwhile."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if link.readlink() == target:
                found.append(int(link.name))
        except FileNotFoundError:
            continue
    return found
