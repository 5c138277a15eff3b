"""An index of (topic, group) pairs by either end."""

from __future__ import annotations

from collections.abc import Iterator


class PairIndex:
    """Pairs in the order of their addition. The cost of a lookup depends only on the size of its result."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, None]] = {}

    def add(self, topic: str, group: str) -> None:
        """Add the pair if it is missing."""
        self._groups.setdefault(topic, {})[group] = None
        self._topics.setdefault(group, {})[topic] = None

    def discard(self, topic: str, group: str) -> None:
        """Remove the pair if it is there."""
        for table, key, name in ((self._groups, topic, group), (self._topics, group, topic)):
            names = table.get(key)
            if names is not None:
                names.pop(name, None)
                if not names:
                    del table[key]

    def groups_of(self, topic: str) -> list[str]:
        """Groups of the topic's pairs."""
        return list(self._groups.get(topic, ()))

    def topics_of(self, group: str) -> list[str]:
        """Topics of the group's pairs."""
        return list(self._topics.get(group, ()))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for topic, groups in self._groups.items():
            for group in groups:
                yield topic, group
