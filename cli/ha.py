"""`ringmq ha`: the state of replication, decisions about a slave's log that differs from its master's, and roles."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from ringmq.cli.access import Access, in_options, server_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, open_admin
from ringmq.cli.arguments import Seconds
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.ha_role import demote, promote
from ringmq.cli.output import print_line, print_result, print_rows, say
from ringmq.cli.running import run, until_signalled
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.ha_bodies import ADOPT, SALVAGE, Divergence, HaDecideRequestHeader, HaStatus

SLAVE_COLUMNS = [
    "slave", "brokerId", "room", "state", "level", "inSync", "reportedOffset", "lagBytes", "lagMs", "windowBytes",
    "bytesPerSecond",
]  # fmt: skip
_slave_option = click.option("--slave", "slave_id", type=int, help="brokerId of the slave; default: the only one.")
_address_option = click.option(
    "--address", default="", metavar="HOST:PORT", help="Address of the slave's broker, if slaves share a brokerId."
)
_broker_option = click.option("--broker", metavar="NAME", help="Only this broker (brokerName).")


@click.group(cls=CommandGroup)
def ha() -> None:
    """Show the state of replication, decide about slaves whose log differs, and change roles."""


@ha.command()
@_broker_option
@click.option("--watch", type=Seconds(0.1), metavar="SECONDS", help="Repeat at this interval until interrupted.")
@server_options
def status(broker: str | None, watch: float | None, access: Access, output: str) -> None:
    """Offsets, lag, state, window and rate of masters and slaves."""
    if watch is None:
        found = run(_status(access, broker))
        if output == "json":
            print_rows(output, found, [])
        else:
            _print_all(found)
        return
    run(until_signalled(_watch(access, broker, watch, output)))


@ha.command()
@_broker_option
@_slave_option
@_address_option
@server_options
def adopt(broker: str | None, slave_id: int | None, address: str, access: Access, output: str) -> None:
    """Adopt the log that a slave has and its master has lost. The master closes and reopens its store for it."""
    _decide(access, output, broker, (slave_id, address), ADOPT)


@ha.command()
@_broker_option
@_slave_option
@_address_option
@server_options
def salvage(broker: str | None, slave_id: int | None, address: str, access: Access, output: str) -> None:
    """Keep the master's log. The slave moves its extra part of the log into its salvage folder."""
    _decide(access, output, broker, (slave_id, address), SALVAGE)


ha.add_command(promote)
ha.add_command(demote)


# ---- asking ----


async def _status(access: Access, broker: str | None) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        return await _ask_all(admin, broker)


async def _watch(access: Access, broker: str | None, seconds: float, output: str) -> None:
    async with open_admin(access.namesrv, access.settings) as admin:
        while True:
            found = await _ask_all(admin, broker)
            if output == "json":
                for entry in found:
                    print_line(entry)
            else:
                click.clear()
                _print_all(found)
            await asyncio.sleep(seconds)


async def _ask_all(admin: Admin, broker: str | None) -> list[dict[str, Any]]:
    """Return every registered broker's status, masters first. `error` replaces a missing status."""
    info = await admin.cluster_info()
    if broker is not None and broker not in info.brokers:
        there = ", ".join(sorted(info.brokers)) or "none"
        raise ValueError(f"no broker {broker} is registered; there is {there}")
    found = []
    for name in sorted(info.brokers) if broker is None else [broker]:
        for broker_id, address in sorted(info.brokers[name].broker_addrs.items()):
            entry: dict[str, Any] = {"address": address, "brokerName": name, "brokerId": broker_id}
            try:
                entry |= (await _ask(admin, address)).to_json()
            except RingmqError as error:
                entry["error"] = _why(error)
            found.append(entry)
    return found


async def _ask(admin: Admin, address: str) -> HaStatus:
    answer = await admin.client.call(address, RequestCode.HA_STATUS, timeout_ms=TIMEOUT_MS)
    return HaStatus.decode(answer.body)


def _why(error: RingmqError) -> str:
    if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return "it does not know this request; ask a stock broker with mqadmin haStatus"
    return in_options(str(error))


# ---- printing ----


def _print_all(found: list[dict[str, Any]]) -> None:
    for number, entry in enumerate(found):
        if number:
            say()
        head = f"{entry['brokerName']} {entry['address']}"
        if "error" in entry:
            say(f"{head}: {entry['error']}")
        elif entry["role"] == "slave":
            _print_slave(head, entry)
        else:
            _print_master(head, entry)


def _print_master(head: str, entry: dict[str, Any]) -> None:
    in_sync = f"{entry['inSyncReplicas']} replicas in sync, {entry['wantedReplicas']} wanted"
    say(
        f"{head}: master, log {entry['minOffset']}..{entry['appendOffset']}, flushed {entry['flushedOffset']}, "
        f"confirmed {entry['confirmOffset']}, {in_sync}"
    )
    if entry["isDegraded"] or entry["replicationState"] != "ok":
        say(f"  DEGRADED: replication is {entry['replicationState']}")
    for divergence in entry["divergences"]:
        say(
            f"  WRITES ARE REFUSED: slave {divergence['brokerId']} {divergence['address']} has log up to "
            f"{divergence['slaveOffset']}, the master up to {divergence['masterOffset']}, "
            f"the same below {divergence['commonOffset']}: ringmq ha adopt or ringmq ha salvage"
        )
    if entry["slaves"]:
        print_rows("table", [_slave_row(slave) for slave in entry["slaves"]], SLAVE_COLUMNS)


def _slave_row(slave: dict[str, Any]) -> dict[str, Any]:
    broker_id = "stock" if slave["brokerId"] < 0 else slave["brokerId"]
    return slave | {"slave": slave["address"], "brokerId": broker_id, "room": slave["room"] or None}


def _print_slave(head: str, entry: dict[str, Any]) -> None:
    master = entry["master"]
    where = master["haAddress"] or "no known master"
    say(
        f"{head}: slave {entry['brokerId']}, log {entry['minOffset']}..{entry['appendOffset']}, "
        f"flushed {entry['flushedOffset']}, confirmed {entry['confirmOffset']}"
    )
    say(
        f"  from {where}: {master['state']}, {master['lagBytes']} bytes behind {master['masterOffset']}, "
        f"{master['bytesPerSecond']} bytes/s"
        + ("" if master["isRegistered"] else ", no master is registered")
        + (f", {master['note']}" if master["note"] else "")
    )


# ---- deciding ----


def _decide(access: Access, output: str, broker: str | None, slave: tuple[int | None, str], choice: str) -> None:
    """Send a decision about a slave. `slave` is (brokerId, address), where None and "" mean any."""
    chosen = run(_send_decision(access, broker, slave, choice))
    name, divergence = chosen["broker"], chosen["divergence"]
    who = f"slave {divergence['brokerId']}"
    what = (
        f"{name} takes over {divergence['commonOffset']}..{divergence['slaveOffset']} of {who}"
        if choice == ADOPT
        else f"the log of {name} counts; {who} puts the rest of its own aside"
    )
    print_result(output, {"broker": name, "choice": choice, **divergence}, what)


async def _send_decision(
    access: Access, broker: str | None, slave: tuple[int | None, str], choice: str
) -> dict[str, Any]:
    slave_id, slave_address = slave
    async with open_admin(access.namesrv, access.settings) as admin:
        waiting: list[tuple[str, str, Divergence]] = []
        for entry in await _ask_all(admin, broker):
            for divergence in entry.get("divergences", ()):
                waiting.append((entry["brokerName"], entry["address"], Divergence.from_json(divergence)))
        wanted = [
            entry
            for entry in waiting
            if slave_id in (None, entry[2].broker_id) and slave_address in ("", entry[2].address)
        ]
        if len(wanted) != 1:
            there = ", ".join(f"slave {entry.broker_id} ({entry.address}) of {name}" for name, _, entry in waiting)
            raise ValueError(
                "name one slave with --slave (and --address, --broker); "
                f"those that wait for a decision: {there or 'none'}"
            )
        name, address, divergence = wanted[0]
        header = HaDecideRequestHeader(
            broker_id=divergence.broker_id, choice=choice, address=divergence.address or None
        )
        await admin.client.call(address, RequestCode.HA_DECIDE, header.encode(), timeout_ms=TIMEOUT_MS)
        return {"broker": name, "divergence": divergence.to_json()}
