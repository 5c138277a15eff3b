"""Keys of `ringmq top`, read while the screen waits for the next scrape."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIT = "q"
HELP = "?"


class QuitKey(Exception):
    """The user has pressed `q`."""


class Keys:
    """Reads keys during waits. If `descriptor` is None, standard input is no terminal and no key arrives."""

    def __init__(self, descriptor: int | None) -> None:
        self.on_help: Callable[[bool], None] = lambda is_shown: None
        self._descriptor = descriptor
        self._help_is_shown = False

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`. `?` shows the help, any key hides it again. Raises `QuitKey`."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            if self._descriptor is None:
                time.sleep(left_s)
            elif select.select([self._descriptor], [], [], left_s)[0]:
                self._take(os.read(self._descriptor, 64))

    def _take(self, typed: bytes) -> None:
        if not typed:  # the terminal is gone
            self._descriptor = None
        for key in typed.decode(errors="replace").lower():
            if key == QUIT:
                raise QuitKey
            if key == HELP or self._help_is_shown:
                self._help_is_shown = not self._help_is_shown
                self.on_help(self._help_is_shown)


@contextmanager
def keys() -> Iterator[Keys]:
    """Read keys from standard input without echo and without Enter. Restores the terminal at the end."""
    if not _has_terminal():
        yield Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _has_terminal() -> bool:
    """Return whether keys arrive at standard input. The kernel stops a background job at `tcsetattr`."""
    return sys.stdin is not None and sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
