"""The port of a worker with several services. Each user of the port submits with tokens of its own range."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import ffi, lib

USER_SHIFT = 32
"""The bits of a token above these are the number of the user."""


TOKEN_MASK = (1 << 64) - (1 << USER_SHIFT)
NO_TOKEN = 1
"""No token of a user under TOKEN_MASK."""


class Completed(NamedTuple):
    """A completion. `token`: without the number of the user. `bytes` 0: nothing was stored."""

    token: int
    code: int
    cause: int
    queue_offset: int
    commit_log_offset: int
    bytes: int


class SharedPort:
    """Claims the port, and sorts its completions by their users."""

    def __init__(self, plane: Plane, number: int) -> None:
        self._port = Port(plane, number)
        self._port.claim()
        self._plane = plane.struct
        self._users: list[PortUser] = []
        self._native_token = NO_TOKEN
        self._found = ffi.new("struct rmq_completion *")

    @property
    def arena(self) -> Any:
        """The whole arena. The users share it by agreement."""
        return self._port.arena

    def user(self) -> PortUser:
        """A new user."""
        self._users.append(PortUser(self, self._port, len(self._users)))
        return self._users[-1]

    def native_user(self) -> PortUser:
        """A new user, the only one of its kind, whose completions a C loop takes. They stay in the rings for it."""
        user = self.user()
        self._native_token = user.first_token
        return user

    def collect(self) -> None:
        """Take the waiting completions, up to the first one of the native user in each ring."""
        found = self._found
        while lib.rmq_port_take_where(self._plane, self._port.number, TOKEN_MASK, self._native_token, 0, found):
            user = self._users[int(found.token) >> USER_SHIFT]
            token = int(found.token) & (1 << USER_SHIFT) - 1
            user.completed.append(
                Completed(token, found.code, found.cause, found.queue_offset, found.commit_log_offset, found.bytes)
            )


class PortUser:
    """The part of a shared port that one user has."""

    def __init__(self, shared: SharedPort, port: Port, number: int) -> None:
        self._shared = shared
        self._port = port
        self.first_token = number << USER_SHIFT
        """The number of the user, as its tokens begin with it."""
        self.completed: deque[Completed] = deque()

    @property
    def number(self) -> int:
        """Number of the port in the plane."""
        return self._port.number

    @property
    def room(self) -> int:
        """Requests that fit into the ring now."""
        return self._port.room

    @property
    def settled_end(self) -> int | None:
        """See Port."""
        return self._port.settled_end

    @property
    def has_answers(self) -> bool:
        """True if a completion of this user waits, or any that no user has taken yet."""
        return bool(self.completed) or self._port.has_answers

    def submit(self, requests: Any, count: int = 1) -> int:
        """Submit requests whose tokens are below 1 << USER_SHIFT. Returns the number that fitted."""
        for number in range(count):
            requests[number].token |= self.first_token
        return self._port.submit(requests, count)

    def take(self) -> Completed | None:
        """The next completion of this user. None if none waits."""
        if not self.completed:
            self._shared.collect()
        return self.completed.popleft() if self.completed else None
