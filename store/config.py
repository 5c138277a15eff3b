"""The settings of a store, by RocketMQ's property names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.store import layout

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DELAY_LEVELS_MAX = 64


class StoreConfigError(ValueError):
    """A store property has an impossible value. The message names property and range."""


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Turn `messageDelayLevel` into milliseconds per level (level 1 first)."""
    levels = []
    for word in text.split():
        match = re.fullmatch(r"(\d+)([smhd])", word)
        if match is None:
            raise StoreConfigError(f"messageDelayLevel: {word!r} is not a number followed by s, m, h or d")
        levels.append(int(match[1]) * _UNIT_MS[match[2]])
    if not 1 <= len(levels) <= DELAY_LEVELS_MAX:
        raise StoreConfigError(f"messageDelayLevel has {len(levels)} levels, not 1 to {DELAY_LEVELS_MAX}")
    return tuple(levels)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Sizes and switches of one store. The comment of a field names the RocketMQ property."""

    root: Path  # storePathRootDir
    commit_log_directories: tuple[Path, ...] = ()  # storePathCommitLog, `,` separated; empty = <root>/commitlog
    commit_log_file_bytes: int = layout.COMMIT_LOG_FILE_BYTES  # mappedFileSizeCommitLog
    consume_queue_file_bytes: int = layout.CONSUME_QUEUE_FILE_BYTES  # mappedFileSizeConsumeQueue
    batch_consume_queue_file_bytes: int = layout.BATCH_FILE_BYTES  # mapperFileSizeBatchConsumeQueue
    index_slots: int = layout.INDEX_SLOTS  # maxHashSlotNum
    index_entries: int = layout.INDEX_ENTRIES  # maxIndexNum
    message_index: bool = True  # messageIndexEnable
    message_index_safe: bool = False  # messageIndexSafe
    check_crc_on_recover: bool = True  # checkCRCOnRecover
    delay_levels_ms: tuple[int, ...] = field(default=parse_delay_levels(DEFAULT_DELAY_LEVELS))  # messageDelayLevel

    def __post_init__(self) -> None:
        unit, batch_unit = layout.CONSUME_QUEUE_UNIT.size, layout.BATCH_UNIT.size
        if self.commit_log_file_bytes < 4096 or self.commit_log_file_bytes > 1 << 31:
            raise StoreConfigError(
                f"mappedFileSizeCommitLog = {self.commit_log_file_bytes} is outside 4096..2147483648"
            )
        for name, value, step in (
            ("mappedFileSizeConsumeQueue", self.consume_queue_file_bytes, unit),
            ("mapperFileSizeBatchConsumeQueue", self.batch_consume_queue_file_bytes, batch_unit),
        ):
            if value < step or value % step:
                raise StoreConfigError(f"{name} = {value} is not a positive multiple of {step}")
        if self.index_slots < 1 or self.index_entries < 2:
            raise StoreConfigError(
                f"maxHashSlotNum = {self.index_slots} is below 1, or maxIndexNum = {self.index_entries} below 2"
            )
        if not self.commit_log_directories:
            object.__setattr__(self, "commit_log_directories", (self.root / layout.COMMIT_LOG,))

    @classmethod
    def from_properties(cls, root: Path, properties: Mapping[str, str]) -> "StoreConfig":
        """Make a config from RocketMQ properties. Unknown names are ignored: other parts check them."""

        def number(name: str, default: int) -> int:
            text = properties.get(name, str(default))
            try:
                return int(text)
            except ValueError as error:
                raise StoreConfigError(f"{name} = {text!r} is not an integer") from error

        def switch(name: str, default: bool) -> bool:
            text = properties.get(name, str(default)).lower()
            if text not in ("true", "false"):
                raise StoreConfigError(f"{name} = {text!r} is not true or false")
            return text == "true"

        unit, batch_unit = layout.CONSUME_QUEUE_UNIT.size, layout.BATCH_UNIT.size
        queue_bytes = number("mappedFileSizeConsumeQueue", layout.CONSUME_QUEUE_FILE_BYTES)
        batch_bytes = number("mapperFileSizeBatchConsumeQueue", layout.BATCH_FILE_BYTES)
        directories = [part for part in properties.get("storePathCommitLog", "").split(",") if part.strip()]
        return cls(
            root=root,
            commit_log_directories=tuple(Path(part.strip()) for part in directories),
            commit_log_file_bytes=number("mappedFileSizeCommitLog", layout.COMMIT_LOG_FILE_BYTES),
            consume_queue_file_bytes=-(-queue_bytes // unit) * unit,  # stock rounds up to whole units
            batch_consume_queue_file_bytes=-(-batch_bytes // batch_unit) * batch_unit,
            index_slots=number("maxHashSlotNum", layout.INDEX_SLOTS),
            index_entries=number("maxIndexNum", layout.INDEX_ENTRIES),
            message_index=switch("messageIndexEnable", True),
            message_index_safe=switch("messageIndexSafe", False),
            check_crc_on_recover=switch("checkCRCOnRecover", True),
            delay_levels_ms=parse_delay_levels(properties.get("messageDelayLevel", DEFAULT_DELAY_LEVELS)),
        )
