"""Encoded entries of a table, kept until an entry changes. So one change among many entries costs little in files and
answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ringmq.broker.requests.turns import Steps
from ringmq.remoting import json_body
from ringmq.store.config_files import encode_config

PART_ENTRIES = 32
"""Entries of one part of a file: some 1.5 ms if no text is kept yet."""

BODY_ENTRIES = 64
"""Entries of one step of an answer: some 0.5 ms if no text is kept yet."""


class Bean(Protocol):
    """An entry."""

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""


class EncodedEntries:
    """The member `table` of the config file `file`, and of the answer that contains it."""

    def __init__(self, file: str, table: str) -> None:
        self._file = file
        self._table = table
        self._lines: dict[str, str] = {}
        self._bodies: dict[str, bytes] = {}

    def forget(self, name: str) -> None:
        """Drop the text of an entry that has changed or is gone."""
        self._lines.pop(name, None)
        self._bodies.pop(name, None)

    def file_parts(self, head: dict[str, Any], entries: list[tuple[str, Bean]]) -> Iterator[str]:
        """The file in parts of PART_ENTRIES: `head`, then the member. Entries may change between two parts."""
        yield encode_config(self._file, head).removesuffix("\n}") + f',\n\t"{self._table}":{{'
        for first in range(0, len(entries), PART_ENTRIES):
            part = entries[first : first + PART_ENTRIES]
            lines = [self._lines.get(name) or self._line(name, bean) for name, bean in part]
            yield (",\n" if first else "\n") + ",\n".join(lines)
        yield "\n\t}\n}" if entries else "}\n}"

    def add_member(self, text: bytearray, entries: list[tuple[str, Bean]]) -> Steps[None]:
        """Add the member of an answer. Entries may change between two steps."""
        text += b'"%s":{' % self._table.encode()
        for first in range(0, len(entries), BODY_ENTRIES):
            part = entries[first : first + BODY_ENTRIES]
            text += b"," if first else b""
            text += b",".join([self._bodies.get(name) or self._body(name, bean) for name, bean in part])
            yield
        text += b"}"

    def _line(self, name: str, bean: Bean) -> str:
        text = encode_config(self._file, {self._table: {name: bean.to_json()}})
        lines = self._lines[name] = "\n".join(text.split("\n")[2:-2])
        return lines

    def _body(self, name: str, bean: Bean) -> bytes:
        body = self._bodies[name] = json_body.write_body({name: bean.to_json()})[1:-1]
        return body
