"""The expressions of pops, compiled once each. C finds them by their text; this module puts those that are missing."""

from __future__ import annotations

import os
from typing import Any

from ringmq.broker.requests.turns import Steps
from ringmq.filters.errors import FilterError
from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.remoting.subscription import BadSubscription, build_subscription

TAGS_MAX: int = lib.RMQ_TAGS_MAX


class Compiled:
    """An expression as C takes it. `kind`: RMQ_SUBSCRIPTION_*; COLD: it is refused."""

    def __init__(self, kind: int, tags: tuple[int, ...] = (), program: bytes = b"") -> None:
        self.kind, self.tags, self.program = kind, tags, program


def compiling(kind: str, expression: str) -> Steps[Compiled]:
    """Compile the expression of a pop, in steps of a few milliseconds. A kind without text is TAG.

    An expression that stock refuses becomes COLD.
    """
    try:
        found = build_subscription("", expression, kind or None)
        if found.is_all:
            return Compiled(lib.RMQ_SUBSCRIPTION_ALL)
        if found.is_tags and len(found.code_set) <= TAGS_MAX:
            return Compiled(lib.RMQ_SUBSCRIPTION_TAGS, tuple(sorted(found.code_set)))
        if found.is_tags:  # more than a filter by hashes holds
            expression = "TAGS IN ({})".format(", ".join(_quoted(tag) for tag in sorted(found.tags_set)))
        elif not found.is_sql:
            return Compiled(lib.RMQ_SUBSCRIPTION_COLD)
        from ringmq.filters import compiler  # here: its parser takes 70 ms to build

        program = yield from compiler.compiling(expression)
        return Compiled(lib.RMQ_SUBSCRIPTION_FILTER, program=program.encode())
    except (BadSubscription, FilterError):
        return Compiled(lib.RMQ_SUBSCRIPTION_COLD)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Filters:
    """A struct rmq_pop_filters. If 1,024 expressions or 16 MiB are there, the next one takes the
    place of the oldest."""

    def __init__(self) -> None:
        self.native: Any = lib.rmq_pop_filters_open(table_secret())
        if self.native == ffi.NULL:
            raise MemoryError("no memory for the expressions of pops")

    def __len__(self) -> int:
        return int(lib.rmq_pop_filters_count(self.native))

    def close(self) -> None:
        """Forget all."""
        lib.rmq_pop_filters_close(self.native)
        self.native = ffi.NULL

    def put(self, kind: str, expression: str, found: Compiled) -> None:
        """Keep an expression that C has not found. Raises OSError without memory."""
        wanted = ffi.new("struct rmq_subscription_copy *", {"kind": found.kind, "tag_count": len(found.tags)})
        wanted.tags[0 : len(found.tags)] = found.tags
        text = kind.encode("utf-8", "replace") + b"\0" + expression.encode("utf-8", "replace")
        program = ffi.NULL if not found.program else ffi.from_buffer(found.program)
        code = lib.rmq_pop_filter_put(self.native, text, len(text), wanted, program, len(found.program))
        if code < 0:
            raise OSError(-code, f"an expression of {len(text)} bytes cannot be kept: {os.strerror(-code)}")
