"""Small files, so that every border is met within a short run."""

from typing import Any

SMALL_STORE: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "maxMessageSize": 65_536,
}
