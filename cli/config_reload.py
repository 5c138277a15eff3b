"""`ringmq config reload`: asks the running server for its values and sends it those that it can change.

A broker is found by its store, a name server by the address in its configuration.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import click

from ringmq.cli.output import print_rows, say
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.remoting.address import address_text, host_from_here
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.properties_text import BadProperties, format_properties, parse_assignments, parse_properties

TIMEOUT_MS = 10_000
NEEDS_RESTART_STATUS = 3
BROKER_CODES = RequestCode.GET_BROKER_CONFIG, RequestCode.UPDATE_BROKER_CONFIG
NAMESRV_CODES = RequestCode.GET_NAMESRV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG
Compare = Callable[[Mapping[str, str]], list[Any]]
"""Compares the server's values, by name, with the configuration. Returns the keys that differ."""
LIVE, RESTART = "changed live", "needs a restart"
RESTART_IT = "a changed listenPort, bindAddress or kvConfigPath needs a restart"


def reload_broker(config_file: Path | None, assignments: tuple[str, ...], store: Path | None, output: str) -> int:
    """Compare, change, report, and return the exit status. Raises ClickException if nothing was changed."""
    from ringmq.broker.config.broker_config import RETENTION, ConfigError
    from ringmq.broker.config.reload import differences
    from ringmq.broker.config.sources import default_store, read_config
    from ringmq.broker.open_files import fit_connections

    try:
        wanted, notices = read_config(config_file, assignments, os.environ)
    except ConfigError as error:
        raise click.ClickException(f"{error}; nothing was changed") from error
    for notice in notices:
        say(notice, err=True)
    root = store or Path(wanted.store_path_root_dir or default_store(os.environ))
    if store is not None:  # it wins over the file, and the broker that is found has it
        wanted = dataclasses.replace(wanted, store_path_root_dir="")
    address = _address_of(root)
    wanted, _ = fit_connections(wanted, _open_files_max(root))  # as the broker did at its start
    own = _has_own_namesrv(root)

    def compare(running: Mapping[str, str]) -> list[Any]:
        return differences(wanted, running, has_own_namesrv=own)

    return _reload("broker", address, compare, BROKER_CODES, output, RETENTION)


def reload_namesrv(config_file: Path | None, assignments: tuple[str, ...], output: str) -> int:
    """Do the same for a name server."""
    from ringmq.namesrv.config import ConfigError, NamesrvConfig

    try:
        wanted = NamesrvConfig.from_file(config_file) if config_file is not None else NamesrvConfig()
        wanted.update(parse_assignments(assignments))
    except (ConfigError, BadProperties) as error:
        raise click.ClickException(f"{error}; nothing was changed") from error
    address = address_text(host_from_here(wanted.bind_address), wanted.listen_port)

    def compare(running: Mapping[str, str]) -> list[Any]:
        own = wanted.kv_config_path
        other = running.get("kvConfigPath", own)
        if own and other != own:  # a server whose settings are not ours to change
            raise click.ClickException(
                f"the name server on {address} is another one: its kvConfigPath is {other or '(empty)'}, not {own}; "
                "nothing was changed"
            )
        return _namesrv_differences(wanted, running)

    try:
        return _reload("name server", address, compare, NAMESRV_CODES, output)
    except click.ClickException as error:
        raise click.ClickException(f"{error.message}; {RESTART_IT}") from error


def _namesrv_differences(wanted: Any, running: Mapping[str, str]) -> list[Any]:
    from ringmq.broker.config.reload import Difference
    from ringmq.namesrv.config import BLACK_LIST

    pairs = ((name, running.get(name, value), value) for name, value in wanted.to_properties().items())
    return [Difference(name, old, new, name not in BLACK_LIST) for name, old, new in pairs if old != new]


def _reload(
    kind: str,
    address: str,
    compare: Compare,
    codes: tuple[RequestCode, RequestCode],
    output: str,
    bounded_names: Collection[str] = (),
) -> int:
    try:
        found = asyncio.run(_hand_over(address, compare, *codes, bounded_names))
    except (RingmqError, OSError) as error:
        raise click.ClickException(f"the {kind} on {address} rejected the changes: {error}") from error
    _print(found, output, kind)
    return 0 if all(change.live for change in found) else NEEDS_RESTART_STATUS


def _address_of(root: Path) -> str:
    """Return the address of the broker that has this store open."""
    from ringmq.broker.config.run_config import read_run_config, run_config_path
    from ringmq.ipc.segment import plane_name

    try:
        running = read_run_config(run_config_path(plane_name(root)))
    except FileNotFoundError as error:
        raise click.ClickException(f"no broker runs on the store {root}") from error
    except OSError as error:
        raise click.ClickException(f"{error}; run this as the user of the broker") from error
    return address_text(host_from_here(running.bind_address), running.listen_port)


def _has_own_namesrv(root: Path) -> bool:
    """True if the broker that has this store open runs a name server, too: it is a `ringmq serve`."""
    from ringmq.ipc.plane import Plane
    from ringmq.ipc.segment import plane_name
    from ringmq.native import lib

    try:
        plane = Plane.open(plane_name(root))
    except (OSError, ValueError):  # it has just ended, or is of another build
        return False
    return bool(plane.role(lib.RMQ_ROLE_NAMESRV).generation)


def _open_files_max(root: Path) -> int:
    """Return the hard limit of the broker that has this store open, -1 if it has none or cannot be asked."""
    from ringmq.ipc.watermark import read_watermarks

    try:
        return resource.prlimit(read_watermarks(root).owner_pid, resource.RLIMIT_NOFILE)[1]
    except OSError:
        return resource.RLIM_INFINITY


async def _hand_over(
    address: str, compare: Compare, ask_code: RequestCode, change_code: RequestCode, bounded_names: Collection[str]
) -> list[Any]:
    """Change the live values and return the differences that were found.

    A broker accepts the keys in `bounded_names` only from loopback and named networks, so they go in a separate
    request.
    """
    from msgspec import structs

    client = RemotingClient()
    try:
        answer = await client.call(address, ask_code, {}, timeout_ms=TIMEOUT_MS)
        running = {line.name: line.value for line in parse_properties(answer.body.decode())}
        found = compare(running)
        bounded = [change for change in found if change.name in bounded_names]

        async def change_live(changes: list[Any]) -> None:
            values = {change.name: change.wanted for change in changes if change.live}
            if values:
                await client.call(address, change_code, {}, format_properties(values).encode(), timeout_ms=TIMEOUT_MS)

        await change_live([change for change in found if change not in bounded])
        try:
            await change_live(bounded)
        except BrokerError as error:  # this host's address is no loopback, and adminAddresses does not name it
            if error.code != ResponseCode.NO_PERMISSION:
                raise
            found = [structs.replace(change, live=False) if change in bounded else change for change in found]
        return found
    finally:
        await client.close()


def _print(found: list[Any], output: str, kind: str) -> None:
    from msgspec import structs

    rows = [{**structs.asdict(change), "outcome": LIVE if change.live else RESTART} for change in found]
    if output == "json":
        print_rows(output, rows, [])
        return
    for row in rows:
        say(f"{row['name']}: {row['running'] or '(empty)'} -> {row['wanted'] or '(empty)'}: {row['outcome']}")
    restart = sum(not change.live for change in found)
    say(
        f"{len(found) - restart} keys changed live, {restart} need a restart"
        if found
        else f"the {kind} runs with this configuration: nothing to change"
    )
