"""A broker, RingMQ's or stock, on a copy of the golden store."""

import tarfile
from pathlib import Path
from typing import Any

from tests.archives import extract_all
from tests.conformance import servers

GOLDEN = Path(__file__).parents[1] / "golden" / "store-basic"


def golden_settings() -> dict[str, Any]:
    """Sizes of the golden files, and a retention that leaves them alone."""
    pairs = dict(line.split("=", 1) for line in (GOLDEN / "broker-settings.txt").read_text().split())
    kept = {name: value for name, value in pairs.items() if name.startswith(("mapped", "mapper", "max"))}
    return kept | {"fileReservedTime": 87_600, "ringmqAcceptUnserved": True}


def start_on_golden(kind: str, home: Path) -> servers.Server:
    with tarfile.open(GOLDEN / "store-basic.tar.gz") as tar:
        extract_all(tar, home)
    return servers.start(kind, home / "server", golden_settings(), home / "store-basic")
