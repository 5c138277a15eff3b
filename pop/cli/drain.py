"""`ringmq pop drain` and `ringmq pop resume`: the end of POP at a broker, before an older version gets its store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import click

from ringmq.cli.access import Access, server_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, open_admin
from ringmq.cli.arguments import Seconds
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.output import print_result, say
from ringmq.cli.running import run
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.pop_bodies import CLOSING, DRAIN, DRAIN_NOW, DRAINED, RESUME, PopDrain

ASK_S = 0.5
WAIT_S_MAX = 30 * 86_400
"""No message is invisible for longer."""
_broker_option = click.option("--broker", metavar="NAME", help="This broker (brokerName). Default: the only one.")


@click.group(cls=CommandGroup)
def pop() -> None:
    """End POP at a broker before an older version gets its store."""


@pop.command()
@_broker_option
@click.option("--now", is_flag=True, help="Do not wait: open messages come again in the version that gets the store.")
@click.option(
    "--wait", "wait_s", type=Seconds(0, WAIT_S_MAX), default=60, show_default=True, metavar="SECONDS",
    help="Time until all open messages are acknowledged or have come again.",
)  # fmt: skip
@server_options
def drain(broker: str | None, now: bool, wait_s: float, access: Access, output: str) -> None:
    """Give no message by POP any more, and leave none open in the log.

    Stop the broker behind it: an older version can serve the store. If messages are open after the time, the broker
    gives messages again and the status is 1.
    """
    done = run(_drain(access, broker, now, wait_s))
    sentence = f"{done['broker']} {done['address']}: drained, {done['messages']} messages are open; stop the broker now"
    print_result(output, done, sentence)


@pop.command()
@_broker_option
@server_options
def resume(broker: str | None, access: Access, output: str) -> None:
    """Give messages by POP again after a drain."""
    done = run(_resume(access, broker))
    sentence = f"{done['broker']} {done['address']}: {done['state']}, {done['messages']} messages are open"
    print_result(output, done, sentence)


async def _drain(access: Access, broker: str | None, now: bool, wait_s: float) -> dict[str, Any]:
    """The state at the end. Raises `RingmqError`, and ValueError if messages are open."""
    async with open_admin(access.namesrv, access.settings) as admin:
        name, address = await _master(admin, broker)
        end_s, told, seen = time.monotonic() + wait_s, "", None
        try:
            while True:
                seen = await _ask(admin, address, DRAIN_NOW if now else DRAIN)
                if seen.state == DRAINED:
                    return _result(name, address, seen)
                if seen.failure:
                    raise ValueError(f"{name} {address}: {seen.failure}; it gives messages again")
                if seen.state != CLOSING and time.monotonic() >= end_s:
                    text = f"{name} {address}: {seen.messages} messages are open after {wait_s:g} s"
                    raise ValueError(f"{text}; it gives messages again: see --wait and --now")
                progress = seen.progress or f"{seen.messages} messages are open"
                if progress != told:
                    say(f"{name} {address}: {progress}", err=True)
                    told = progress
                await asyncio.sleep(ASK_S)
        except BaseException:  # also for Ctrl-C
            if seen is not None:
                with contextlib.suppress(RingmqError, ValueError):  # the broker does it by itself a while later
                    await _ask(admin, address, RESUME)
            raise


async def _resume(access: Access, broker: str | None) -> dict[str, Any]:
    async with open_admin(access.namesrv, access.settings) as admin:
        name, address = await _master(admin, broker)
        return _result(name, address, await _ask(admin, address, RESUME))


async def _master(admin: Admin, broker: str | None) -> tuple[str, str]:
    """Name and address of the master. Raises ValueError if it is not known which."""
    brokers = (await admin.cluster_info()).brokers
    masters = {name: data.master_addr for name, data in sorted(brokers.items()) if data.master_addr}
    if broker is not None and broker not in masters:
        raise ValueError(f"no master {broker} is registered; there is {', '.join(masters) or 'none'}")
    if broker is None and len(masters) != 1:
        raise ValueError(f"--broker has to name one of: {', '.join(masters) or 'none is registered'}")
    name = broker or next(iter(masters))
    address = masters[name]
    assert address is not None
    return name, address


async def _ask(admin: Admin, address: str, choice: str) -> PopDrain:
    try:
        answer = await admin.client.call(address, RequestCode.POP_DRAIN, {"choice": choice}, timeout_ms=TIMEOUT_MS)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        text = "it does not know this request; RocketMQ and older versions have records or nothing to drain"
        raise ValueError(f"{address}: {text}") from error
    return PopDrain.decode(answer.body)


def _result(name: str, address: str, seen: PopDrain) -> dict[str, Any]:
    return {"broker": name, "address": address, "state": seen.state, "messages": seen.messages}
