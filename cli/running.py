"""Runs a command's coroutine. Refusals of the other side and bad input end as one line and exit status 1."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from ringmq.cli.access import in_options
from ringmq.client.errors import NameServerConnectError, NameServerTimeoutError, RingmqError, SendError
from ringmq.remoting.errors import RemotingError

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result."""
    try:
        return asyncio.run(work)
    except (RingmqError, RemotingError, ValueError, OSError) as error:
        raise click.ClickException(in_options(str(error)) + _hint(error)) from error


def _hint(error: Exception) -> str:
    """Return advice for an error that a wrong or missing address of a name server explains."""
    cause = error.cause if isinstance(error, SendError) else error
    if isinstance(cause, NameServerConnectError | NameServerTimeoutError):
        return "; `ringmq serve` starts one on this machine, --namesrv or RINGMQ_NAMESRV names another"
    return ""


async def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Await `work`. SIGINT and SIGTERM cancel it without an error, so that its connections are closed in order."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
