"""`ringmq serve` (name server and broker in one go) and `ringmq broker`."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ringmq.cli.output import say_lines
from ringmq.client.extras import not_installed

_shared = (
    click.option(
        "--store", type=click.Path(file_okay=False, path_type=Path),
        help="Store folder (storePathRootDir), by default ~/ringmq-store.",
    ),
    click.option("--port", type=click.IntRange(0, 65535), help="Broker port (listenPort); 0 = any free."),
    click.option(
        "-c", "--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="broker.conf with RocketMQ's property names.",
    ),
    click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Set one property; repeatable."),
    click.option(
        "--accept-unserved", is_flag=True,
        help="Start on a stock broker's store with data that RingMQ does not serve yet.",
    ),
    click.option("--cpus", default="", metavar="0,1", help="CPUs for the workers; default: those of this process."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Start:
    """The values of the shared options."""

    store: Path | None
    port: int | None
    config_file: Path | None
    assignments: tuple[str, ...]
    accept_unserved: bool
    cpus: str

    @property
    def settings(self) -> tuple[str, ...]:
        """The assignments, followed by that of --accept-unserved."""
        return (*self.assignments, "ringmqAcceptUnserved=true") if self.accept_unserved else self.assignments


@dataclass(frozen=True, slots=True)
class _NameServer:
    """The options for the name server of `serve`."""

    port: int
    config_file: Path | None
    assignments: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """Return the options again, for a process that serves."""
        words = ["--namesrv-port", str(self.port)]
        words += ["--namesrv-config", str(self.config_file)] if self.config_file is not None else []
        return words + [word for assignment in self.assignments for word in ("--namesrv-set", assignment)]

    def properties(self) -> dict[str, str]:
        """Return property -> text, from file and assignments. Assignments win. Raises the broker's ConfigError."""
        from ringmq.broker.config.broker_config import ConfigError
        from ringmq.broker.config.sources import from_assignments, from_file
        from ringmq.namesrv.config import ConfigError as NamesrvConfigError
        from ringmq.namesrv.config import NamesrvConfig

        in_file = from_file(self.config_file) if self.config_file is not None else []
        values: dict[str, str] = {}
        for setting in (*in_file, *from_assignments(self.assignments)):
            if setting.name in _SERVE_DECIDES:
                text = f"{setting.place}: the name server of serve listens where {_SERVE_DECIDES[setting.name]} says"
                raise ConfigError(text, setting.name)
            try:
                NamesrvConfig().update({setting.name: setting.value})
            except NamesrvConfigError as error:
                raise ConfigError(f"{setting.place}: {error}", setting.name) from error
            values[setting.name] = setting.value
        return values


_SERVE_DECIDES = {"listenPort": "--namesrv-port", "bindAddress": "the broker's bindAddress"}


def _with_shared_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(_shared):
        command = option(command)
    return command


@click.command()
@_with_shared_options
@click.option("--namesrv-port", type=click.IntRange(0, 65535), default=9876, show_default=True, help="0 = any free.")
@click.option(
    "--namesrv-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="namesrv.conf for the name server.",
)
@click.option(
    "--namesrv-set",
    "namesrv_assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set one of the name server's properties; repeatable.",
)
@click.option("--slaves", type=click.IntRange(0, 4), default=0, help="Slaves on this machine, for trials.")
def serve(
    namesrv_port: int,
    namesrv_config: Path | None,
    namesrv_assignments: tuple[str, ...],
    slaves: int,
    **shared: Any,
) -> None:
    """Run a name server and a broker; prints one line with `ready` when both serve. SIGTERM stops cleanly.

    With --slaves the broker is the master of a group on this machine: each slave has its store beside the master's
    (DIR-slave-1, ...), and everything ends together.
    """
    start = _Start(**shared)
    name_server = _NameServer(namesrv_port, namesrv_config, namesrv_assignments)
    if slaves:
        sys.exit(_run_group(start, name_server, slaves))
    _run(start, name_server)


def _run_group(start: _Start, name_server: _NameServer, slaves: int) -> int:
    from ringmq.broker.config.broker_config import ConfigError
    from ringmq.cli.serve_group import run_group, slave_store
    from ringmq.ipc.exit_status import EXIT_BAD_CONFIG
    from ringmq.remoting.networks import is_loopback

    try:
        config, _, _ = _configured(start)  # the master tells the notices
    except ConfigError as error:
        say_lines(f"Error: {error}", err=True)
        return EXIT_BAD_CONFIG
    home = Path(config.store_path_root_dir).resolve()
    shared = ["-c", str(start.config_file)] if start.config_file is not None else []
    if is_loopback(config.bind_address) and not config.ha_allowed_networks:
        shared += [
            "--set",
            "haAllowedNetworks=127.0.0.0/8",
        ]  # no other host reaches it, and every decision can be tried
    shared += [word for assignment in start.settings for word in ("--set", assignment)]
    shared += ["--cpus", start.cpus] if start.cpus else []
    master = ["serve", *shared, "--store", str(home), *name_server.words]
    master += ["--port", str(start.port)] if start.port is not None else []
    # no path and no port of the master's
    own = ("brokerRole=SLAVE", "haListenPort=0", "metricsPromExporterPort=0", "storePathCommitLog=", "haMasterAddress=")
    groups = []
    for broker_id in range(1, slaves + 1):
        words = [word for assignment in (*own, f"brokerId={broker_id}") for word in ("--set", assignment)]
        groups.append(["broker", *shared, *words, "--store", str(slave_store(home, broker_id)), "--port", "0"])
    return run_group(master, groups)


@click.command()
@_with_shared_options
@click.option("--namesrv", default="", metavar="HOST:PORT[;HOST:PORT]", help="Name servers (namesrvAddr).")
def broker(namesrv: str, **shared: Any) -> None:
    """Run a broker that registers with the given name servers."""
    start = _Start(**shared)
    if namesrv:
        start = replace(start, assignments=(*start.assignments, f"namesrvAddr={namesrv}"))
    _run(start, None)


def _run(start: _Start, name_server: _NameServer | None) -> None:
    from ringmq.native import available, hint

    if not available():
        raise click.ClickException(hint())
    try:
        from ringmq.broker.config.broker_config import ConfigError
        from ringmq.broker.server import ServeOptions
        from ringmq.broker.server import log as server_log
        from ringmq.broker.server import serve as serve_broker
        from ringmq.broker.start_error import StartError
        from ringmq.ipc.exit_status import EXIT_BAD_CONFIG
        from ringmq.ipc.logs import (
            SUPERVISOR,
            configure,
            hold_standard_descriptors,
            level_number,
            refusal_line,
            set_level,
        )
        from ringmq.store.store_lock import StoreLockedError
    except ModuleNotFoundError as error:
        raise click.ClickException(not_installed("a broker", error.name, "broker")) from error

    hold_standard_descriptors()
    try:
        config, notices, given = _configured(start)
        configure(SUPERVISOR, is_json=config.log_format == "json")
        set_level(level_number(config.log_level))
        for notice in notices:
            server_log.warning("%s", notice)
        properties = {} if name_server is None else name_server.properties()
        options = ServeOptions(
            config,
            None if name_server is None else name_server.port,
            properties,
            cpu_numbers(start.cpus),
            connections_given="ringmqConnectionsMax" in given,
            announce=say_lines,
        )
        status = serve_broker(options)
    except ConfigError as error:
        say_lines(refusal_line(str(error)), err=True)
        sys.exit(EXIT_BAD_CONFIG)
    except StoreLockedError as error:
        say_lines(refusal_line(str(error)), err=True)
        sys.exit(1)
    except StartError as error:
        say_lines(refusal_line(str(error)), err=True)
        sys.exit(error.status)
    sys.exit(status)


def _configured(start: _Start) -> tuple[Any, list[str], set[str]]:
    """Return the BrokerConfig, the notices, and the names of the properties that were set.

    The configuration comes from options, file and environment, and names its store. Raises ConfigError.
    """
    from ringmq.broker.config.sources import default_store, read_config, read_settings

    settings = [*start.settings]
    if start.port is not None:
        settings.append(f"listenPort={start.port}")
    if start.store is not None:
        settings.append(f"storePathRootDir={start.store.resolve()}")
    config, notices = read_config(start.config_file, settings, os.environ)
    if not config.store_path_root_dir:
        config = replace(config, store_path_root_dir=default_store(os.environ))
    given, _ = read_settings(start.config_file, settings, os.environ)
    return config, notices, {setting.name for setting in given}


def cpu_numbers(text: str) -> tuple[int, ...]:
    """Return the CPUs of a `--cpus` option, empty without a choice."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: wanted CPU numbers like 0,1", param_hint="--cpus") from error
    missing = set(numbers) - os.sched_getaffinity(0)
    if missing:
        raise click.BadParameter(f"CPUs {sorted(missing)} are not available here", param_hint="--cpus")
    return numbers
