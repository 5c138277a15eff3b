"""The look of `ringmq doctor` at waiting timer messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.doctor.facts import DiskFacts
from ringmq.doctor.finding import OK, WARN, Finding, graded
from ringmq.doctor.look import Look
from ringmq.store.config_files import ConfigFileError, load_config
from ringmq.store.layout import TIMER_COUNTS_FILE


def messages_waiting(root: Path) -> int:
    """Timer messages that waited when the worker last counted them."""
    try:
        table = load_config(root, TIMER_COUNTS_FILE).get("timingCount")
    except ConfigFileError as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return 0  # the worker writes the file again
    entries = table.values() if isinstance(table, dict) else ()
    counts = [entry.get("count") for entry in entries if isinstance(entry, dict)]
    return sum(max(0, count) for count in counts if isinstance(count, int))


def check_room(waiting: int, disk: DiskFacts, config: BrokerConfig) -> Iterator[Finding]:
    """Check that retention leaves the records of waiting messages alone."""
    if waiting:
        yield graded(
            "store",
            "timer messages",
            WARN if disk.used_percent >= config.disk_max_used_space_ratio else OK,
            f"{waiting} wait, the disk is {disk.used_percent} % used",
            "above diskSpaceCleanForciblyRatio log files of any age go, with records of waiting messages",
            "make room on the disk",
        )


LOOK = Look(messages_waiting, check_room)
