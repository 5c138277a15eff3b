"""An index of (topic, group) pairs by either end."""

from __future__ import annotations

from collections.abc import Iterator


class PairIndex:
    """Pairs in the order in which they came. The cost of a lookup grows with its result alone."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, None]] = {}

    def add(self, topic: str, group: str) -> None:
        """Note the pair; once is enough."""
        self._groups.setdefault(topic, {})[group] = None
        self._topics.setdefault(group, {})[topic] = None

    def discard(self, topic: str, group: str) -> None:
        """Forget the pair if it is there."""
        for table, key, name in ((self._groups, topic, group), (self._topics, group, topic)):
            names = table.get(key)
            if names is not None:
                names.pop(name, None)
                if not names:
                    del table[key]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that stand beside the topic."""
        return list(self._groups.get(topic, ()))

    def topics_of(self, group: str) -> list[str]:
        """Topics that stand beside the group."""
        return list(self._topics.get(group, ()))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for topic, groups in self._groups.items():
            for group in groups:
                yield topic, group
