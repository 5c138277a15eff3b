"""Texts of a table's entries, kept until an entry changes: one change among many costs little in files and answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ringmq.remoting import json_body
from ringmq.store.config_files import encode_config


class Bean(Protocol):
    """An entry."""

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""


class EntryTexts:
    """The member `table` of the config file `file`, and of the answer that has it, too."""

    def __init__(self, file: str, table: str) -> None:
        self._file = file
        self._table = table
        self._lines: dict[str, str] = {}
        self._bodies: dict[str, bytes] = {}

    def forget(self, name: str) -> None:
        """The entry has changed or is gone."""
        self._lines.pop(name, None)
        self._bodies.pop(name, None)

    def file_member(self, entries: Iterable[tuple[str, Bean]]) -> str:
        """The member as it stands in the file, with the tab before it."""
        lines = [self._lines.get(name) or self._line(name, bean) for name, bean in entries]
        return f'\t"{self._table}":{{\n' + ",\n".join(lines) + "\n\t}" if lines else f'\t"{self._table}":{{}}'

    def body_member(self, entries: Iterable[tuple[str, Bean]]) -> bytes:
        """The member as it stands in an answer."""
        bodies = [self._bodies.get(name) or self._body(name, bean) for name, bean in entries]
        return b'"%s":{%s}' % (self._table.encode(), b",".join(bodies))

    def _line(self, name: str, bean: Bean) -> str:
        text = encode_config(self._file, {self._table: {name: bean.to_json()}})
        lines = self._lines[name] = "\n".join(text.split("\n")[2:-2])
        return lines

    def _body(self, name: str, bean: Bean) -> bytes:
        body = self._bodies[name] = json_body.write_body({name: bean.to_json()})[1:-1]
        return body
