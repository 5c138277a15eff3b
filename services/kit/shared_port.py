"""The port of a worker with several services. Each user of the port submits with tokens of its own range."""

from __future__ import annotations

from typing import Any, Protocol

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import lib

USER_SHIFT = 32
"""The bits of a token above these are the number of the user."""
TOKENS_MAX = 1 << USER_SHIFT
"""Tokens of one user."""

TOKEN_MASK = (1 << 64) - (1 << USER_SHIFT)
NO_TOKEN = 1
"""No token of a user under TOKEN_MASK."""


class User(Protocol):
    """A user of the port."""

    first_token: int
    """The first of its TOKENS_MAX tokens. The port sets it."""

    def completed(self, found: Any) -> None:
        """Accept a completion (struct rmq_completion). It is valid until the call returns."""


class SharedPort(Port):
    """Claims the port, and sorts its completions by their users. The users share the arena by agreement."""

    def __init__(self, plane: Plane, number: int) -> None:
        super().__init__(plane, number)
        self.claim()
        self._users: dict[int, User] = {}
        self._following = 0
        self._native_token = NO_TOKEN

    def add_user(self, user: User) -> None:
        """Give a user its tokens, and its completions from now on."""
        self._users[self._following] = user
        user.first_token = self._next_token()

    def add_native_user(self) -> int:
        """The first token of the only user whose completions a C loop takes. They stay in the rings for it."""
        self._native_token = self._next_token()
        return self._native_token

    def _next_token(self) -> int:
        self._following += 1
        return self._following - 1 << USER_SHIFT

    def collect(self) -> None:
        """Give the waiting completions to their users, up to the first one of the native user in each ring."""
        found = self._found
        while lib.rmq_port_take_where(self._plane, self.number, TOKEN_MASK, self._native_token, 0, found):
            self.deliver(found)

    def deliver(self, found: Any) -> None:
        """Give a completion to its user. `collect` does it, or a C loop that has met it."""
        self._users[found.token >> USER_SHIFT].completed(found)
