"""`ringmq doctor`: checks the machine and a store for a broker."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from ringmq.cli.output import output_option, print_json, say_painted
from ringmq.client.extras import not_installed
from ringmq.remoting.printable import printable_lines

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_shared = (
    click.option(
        "--store",
        type=click.Path(file_okay=False, path_type=Path),
        help="Store folder (storePathRootDir), by default ~/ringmq-store.",
    ),
    click.option("-c", "--config", "config_file", type=_FILE, help="broker.conf."),
    click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="As for `ringmq broker`."),
    click.option("--cpus", default="", metavar="0,1", help="CPUs for the workers; default: those of this process."),
    click.option("--no-disk-trial", is_flag=True, help="Do not measure the disk (3 s, at most 64 MiB written)."),
)


def broker_options(command: Any) -> Any:
    """Add the options that name a broker: the same options start it."""
    for option in reversed(_shared):
        command = option(command)
    return command


@click.command()
@broker_options
@click.option("--namesrv-config", type=_FILE, help="namesrv.conf of `ringmq namesrv`: check its listeners, too.")
@click.option("-v", "--verbose", is_flag=True, help="Show the meaning of every value.")
@output_option
def doctor(
    store: Path | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    cpus: str,
    no_disk_trial: bool,
    namesrv_config: Path | None,
    verbose: bool,
    output: str,
) -> None:
    """Look at this machine and a store: problems to correct, values to look at, values that are well.

    Give the options with which the broker is (to be) started. Nothing is changed, and a running broker is not
    disturbed. Exit status 1 if there is something to correct.
    """
    from ringmq.doctor.finding import FAIL
    from ringmq.doctor.render import render

    config, plan_cpus = resolve(store, config_file, assignments, cpus)
    of_name_server = [] if namesrv_config is None else examine_name_server(namesrv_config)
    findings = [*examine(config, plan_cpus, measure_disk=not no_disk_trial), *of_name_server]
    areas = list(dict.fromkeys(finding.area for finding in findings))
    findings.sort(key=lambda finding: areas.index(finding.area))
    if output == "json":
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        width = min(120, shutil.get_terminal_size().columns)
        for line in render([_shown(finding) for finding in findings], width, verbose=verbose, paint=_paint):
            say_painted(line)
    sys.exit(1 if any(finding.level == FAIL for finding in findings) else 0)


def _shown(finding: Any) -> Any:
    """Return the finding with names from disk and network made printable. `render` adds the colours."""
    texts = dataclasses.asdict(finding)
    return dataclasses.replace(finding, **{name: printable_lines(text) for name, text in texts.items()})


def _paint(text: str, colour: str) -> str:
    return click.style(text, bold=True) if colour == "bold" else click.style(text, fg=colour)


def resolve(store: Path | None, config_file: Path | None, assignments: tuple[str, ...], cpus: str) -> tuple[Any, Any]:
    """Return the BrokerConfig of these options, with its store named, and the CPUs. Raises ClickException."""
    try:
        from ringmq.broker.config.broker_config import ConfigError
        from ringmq.broker.config.sources import default_store, read_config
        from ringmq.native import available, hint
    except ModuleNotFoundError as error:
        raise click.ClickException(not_installed("ringmq doctor", error.name, "broker")) from error
    from ringmq.cli.serve import cpu_numbers

    if not available():
        raise click.ClickException(hint())
    settings = [*assignments, *([f"storePathRootDir={store.resolve()}"] if store is not None else [])]
    try:
        config, _ = read_config(config_file, settings, os.environ)
    except ConfigError as error:
        raise click.ClickException(f"{error} (ringmq config check says all that is wrong in a file)") from error
    if not config.store_path_root_dir:
        config = dataclasses.replace(config, store_path_root_dir=default_store(os.environ))
    return config, cpu_numbers(cpus)


def examine(config: Any, cpus: Any, *, measure_disk: bool) -> list[Any]:
    """Return the doctor's findings."""
    from ringmq.doctor.examine import check, gather

    return check(gather(config, cpus, measure_disk=measure_disk), config)


def examine_name_server(path: Path) -> list[Any]:
    """Return the findings for a name server with this namesrv.conf. Raises ClickException."""
    from ringmq.doctor.check_endpoints import check_endpoints
    from ringmq.namesrv.config import ConfigError, NamesrvConfig
    from ringmq.remoting.endpoints import name_server_endpoints

    try:
        config = NamesrvConfig.from_file(path)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    lists = {"admin": config.admin_addresses, "brokers": config.broker_addresses}
    return list(check_endpoints(name_server_endpoints(config.bind_address, config.listen_port, **lists)))
