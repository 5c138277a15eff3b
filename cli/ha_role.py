"""`ringmq ha promote` and `ringmq ha demote`: change the role of one broker while it runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import click

from ringmq.cli.access import Access, server_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, open_admin
from ringmq.cli.output import print_result, say
from ringmq.cli.running import run
from ringmq.client.errors import BrokerError
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.role_bodies import DEMOTE, LOOK, PLAN, PROMOTE, HaRoleRequestHeader, RoleState

ASK_S = 0.02
WAIT_S_MAX = 60.0
"""Time of an order. A broker gives a promotion up sooner; a demotion goes on without the command."""
_broker_option = click.option(
    "--broker", "address", required=True, metavar="HOST:PORT", help="Address of the broker, see ringmq ha status."
)
_dry_option = click.option("--dry-run", is_flag=True, help="Change nothing, and say what the command would do.")


@click.command()
@_broker_option
@_dry_option
@click.option("--accept-loss", is_flag=True, help="Promote also if acknowledged messages may be lost.")
@server_options
def promote(address: str, dry_run: bool, accept_loss: bool, access: Access, output: str) -> None:
    """Make a slave the master of its group. It first says which messages may be lost, and stops if there are any.

    Demote a master that lives before. A dead master becomes a slave when it comes back.
    """
    done = run(_promote(access, address, is_dry=dry_run, accepts_loss=accept_loss))
    if dry_run:
        planned = replace(done, epoch=done.planned_epoch)
        _print(output, address, planned, f"would become the master of epoch {planned.epoch}")
    else:
        _print(output, address, done, f"is the master, epoch {done.epoch}")


@click.command()
@_broker_option
@_dry_option
@server_options
def demote(address: str, dry_run: bool, access: Access, output: str) -> None:
    """Make the master a slave. Its group takes no messages until a broker is promoted."""
    done = run(_demote(access, address, is_dry=dry_run))
    what = "would become a slave" if dry_run else f"is a slave, epoch {done.epoch}"
    _print(output, address, done, what)


def _print(output: str, address: str, done: RoleState, what: str) -> None:
    fields = {"broker": done.broker_name, "address": address, "role": done.tenure, "epoch": done.epoch}
    fields |= {"losses": list(done.losses), "advice": list(done.advice)}
    print_result(output, fields, f"{done.broker_name} {address} {what}")
    for line in done.advice:
        say(line, err=True)


async def _promote(access: Access, address: str, *, is_dry: bool, accepts_loss: bool) -> RoleState:
    """The state at the end. Raises `RingmqError`, and ValueError if the broker is not the master."""
    async with open_admin(access.namesrv, access.settings) as admin:
        plan = await _carry_out(admin, address, HaRoleRequestHeader(choice=PLAN))
        for line in plan.losses:
            say(f"messages may be lost: {line}", err=True)
        if is_dry:
            return plan
        if plan.losses and not accepts_loss:
            raise ValueError(f"{address} is not promoted, because messages may be lost; --accept-loss promotes it")
        return await _carry_out(admin, address, HaRoleRequestHeader(choice=PROMOTE, accepts_loss=accepts_loss))


async def _demote(access: Access, address: str, *, is_dry: bool) -> RoleState:
    async with open_admin(access.namesrv, access.settings) as admin:
        if not is_dry:
            return await _carry_out(admin, address, HaRoleRequestHeader(choice=DEMOTE))
        state = await _ask(admin, address, HaRoleRequestHeader(choice=LOOK))
        if state.tenure != "master":
            raise ValueError(f"{address} is no master: it is {state.tenure}, epoch {state.epoch}")
        return state


async def _carry_out(admin: Admin, address: str, header: HaRoleRequestHeader) -> RoleState:
    """Send an order and wait for its end. Tell its steps meanwhile."""
    state = await _ask(admin, address, header)
    order, end_s, told = state.order, time.monotonic() + WAIT_S_MAX, state.step
    while not state.is_done and state.order == order:
        if time.monotonic() >= end_s:
            raise ValueError(f"{address} goes on without this command after {WAIT_S_MAX:g} s: {state.step}")
        await asyncio.sleep(ASK_S)
        state = await _ask(admin, address, HaRoleRequestHeader(choice=LOOK))
        if state.step != told:
            say(f"{address}: {state.step}", err=True)
            told = state.step
    if state.order != order:
        why = "has taken another order, or a replacement of its worker control goes on without this one"
        raise ValueError(f"{address} {why}: it is {state.tenure}, epoch {state.epoch}")
    if state.failure:
        raise ValueError(f"{address} is {state.tenure}, epoch {state.epoch}: {state.failure}")
    return state


async def _ask(admin: Admin, address: str, header: HaRoleRequestHeader) -> RoleState:
    try:
        answer = await admin.client.call(address, RequestCode.HA_ROLE, header.encode(), timeout_ms=TIMEOUT_MS)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        remedy = "stop it, set brokerRole and brokerId in its configuration, and start it"
        text = f"{address} does not know this request, it is RocketMQ or an older version: {remedy}"
        raise ValueError(text) from error
    return RoleState.decode(answer.body)
