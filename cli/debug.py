"""`ringmq debug bundle`: everything for an inquiry in one archive."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import click

from ringmq.cli.command_group import CommandGroup
from ringmq.cli.doctor import broker_options, examine, resolve
from ringmq.cli.output import output_option, print_json, print_rows, say

RUNTIME_TIMEOUT_MS = 3000
JOURNAL_LINES = 5000
JOURNAL_TIMEOUT_S = 20


@click.group(cls=CommandGroup)
def debug() -> None:
    """Collect what an inquiry needs."""


@debug.command()
@broker_options
@click.option("--to", "target", type=click.Path(path_type=Path), help="File to write; default: ringmq-debug-HOST-TIME.")
@click.option("--log", "logs", multiple=True, type=click.Path(dir_okay=False, path_type=Path),
              help="A log file whose end is added; repeatable.")  # fmt: skip
@click.option("--unit", help="A systemd unit whose newest journal lines are added.")
@output_option
def bundle(
    store: Path | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    cpus: str,
    no_disk_trial: bool,
    target: Path | None,
    logs: tuple[Path, ...],
    unit: str | None,
    output: str,
) -> None:
    """Write a .tar.gz with the doctor's findings, settings, versions, the store from outside, workers and /proc.

    No message bodies; values named like secrets are hidden. At most 16 MiB before compression. Prints what is in it.
    """
    from ringmq.broker.config.check import effective_values
    from ringmq.broker.config.sources import read_settings
    from ringmq.doctor.bundle import Entry, write_bundle
    from ringmq.doctor.collect import collect, log_tail

    config, plan_cpus = resolve(store, config_file, assignments, cpus)
    given = [*assignments, *([f"storePathRootDir={store.resolve()}"] if store is not None else [])]
    settings, _ = read_settings(config_file, given, os.environ)
    values = effective_values(settings)
    path = target or Path(f"ringmq-debug-{socket.gethostname()}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    _check_files(path, logs)
    findings = examine(config, plan_cpus, measure_disk=not no_disk_trial)
    entries: list[Entry] = [*collect(config, values, findings), _runtime(config)]
    try:
        entries += [log_tail(log) for log in logs]
        entries += [_journal(unit)] if unit else []
        rows = write_bundle(path, entries)
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror or error}") from error
    if output == "json":
        print_json({"file": str(path), "entries": rows})
        return
    print_rows("table", rows, ["name", "bytes", "note"])
    say()
    say(f"{path}: {path.stat().st_size} bytes. Look through it before you give it away.")


def _check_files(target: Path, logs: tuple[Path, ...]) -> None:
    """Raise ClickException for a log that cannot be read, or a folder that cannot take the archive: seconds earlier."""
    try:
        for log in logs:
            log.open("rb").close()
        if not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=True):
            os.scandir(target.parent).close()  # names a missing folder
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target.parent))
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error


def _runtime(config: Any) -> Any:
    """Return a running broker's runtime info (request 28), or the reason why there is none."""
    import asyncio

    from ringmq.cli.admin import open_admin
    from ringmq.client.errors import RingmqError
    from ringmq.doctor.bundle import json_entry
    from ringmq.remoting.address import address_text, host_from_here
    from ringmq.remoting.codes import RequestCode

    address = address_text(host_from_here(config.bind_address), config.listen_port)

    async def ask() -> Any:
        async with open_admin(address) as admin:
            code = RequestCode.GET_BROKER_RUNTIME_INFO
            return (await admin.client.call(address, code, {}, timeout_ms=RUNTIME_TIMEOUT_MS)).body

    try:
        return json_entry("runtime.json", json.loads(asyncio.run(ask())))
    except (RingmqError, OSError, ValueError) as error:
        return json_entry("runtime.json", {"error": f"{address}: {error}"})


def _journal(unit: str) -> Any:
    from ringmq.doctor.bundle import text_entry

    command = ["journalctl", "--no-pager", "-u", unit, "-n", str(JOURNAL_LINES)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=JOURNAL_TIMEOUT_S, check=False)
        text = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        text = str(error)
    return text_entry("log/journal.txt", text)
