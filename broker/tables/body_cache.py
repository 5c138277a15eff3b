"""The text of a whole table, made once for all requests that ask for it.

At most one text is made at a time. A request takes the newest text if the table has not changed since. It joins the
text under construction if that has the table's current version. Otherwise it waits for the next text. So the work does
not grow with the number of requests.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.broker.requests.turns import Steps


class _Making:
    def __init__(self, number: int, version: object, steps: Steps[bytes]) -> None:
        self.number = number
        self.version = version
        self.body: bytes | None = None
        self.error: Exception | None = None
        self.askers = 0
        self._steps = steps

    @property
    def is_done(self) -> bool:
        return self.body is not None or self.error is not None

    def advance(self) -> None:
        """Run one step. All waiting requests get its error."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.body = end.value
        except Exception as error:
            self.error = error


class BodyCache:
    """The text. `make` gives the steps to it, `version` the table's current version. The text is kept until
    `forget`."""

    def __init__(self, make: Callable[[], Steps[bytes]], version: Callable[[], object]) -> None:
        self._make = make
        self._version = version
        self._making: _Making | None = None
        self._kept: _Making | None = None
        self._begun = 0
        """Number of texts begun so far."""
        self._used = False

    def steps(self) -> Steps[bytes]:
        """The text of the table as of the first step or later."""
        self._used = True
        wanted, since = self._version(), self._begun
        if self._kept is not None and self._kept.version == wanted:
            return self._result(self._kept)
        before = self._making
        if before is not None and before.version != wanted:
            yield from self._follow(before)
            if self._kept is not None and self._kept.number > since:
                return self._result(self._kept)
        if self._making is None:
            self._begun += 1
            self._making = _Making(self._begun, self._version(), self._make())
        making = self._making
        yield from self._follow(making)
        return self._result(making)

    def forget(self) -> None:
        """Drop the text unless a request has taken it since the last call."""
        if not self._used:
            self._kept = None
        self._used = False

    def _follow(self, making: _Making) -> Steps[None]:
        making.askers += 1
        try:
            while not making.is_done:
                making.advance()
                yield
        finally:
            making.askers -= 1
            if self._making is making and (making.is_done or not making.askers):
                self._making = None
                if making.body is not None:
                    self._kept = making

    @staticmethod
    def _result(making: _Making) -> bytes:
        if making.error is not None:
            raise making.error
        assert making.body is not None
        return making.body
