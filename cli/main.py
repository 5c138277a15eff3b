"""The `ringmq` command: one table of commands, each loaded on its first use.

Help comes from the table, so `ringmq --help` loads no command. To add a command, write a module with a click command
and add a line to `COMMANDS`. Commands of a guest are in its row (`ipc/guests.py`).
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import click


class Entry(NamedTuple):
    """A command's module and its line of help."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "serve": Entry("ringmq.cli.serve", "serve", "Run a name server and a broker in one go."),
    "broker": Entry("ringmq.cli.serve", "broker", "Run a broker that registers with name servers."),
    "namesrv": Entry("ringmq.cli.namesrv", "namesrv", "Run a name server."),
    "topic": Entry("ringmq.cli.topic", "topic", "List, create, delete and inspect topics."),
    "group": Entry("ringmq.cli.group", "group", "List, create, delete and inspect consumer groups."),
    "produce": Entry("ringmq.cli.produce", "produce", "Send messages given with -m, from a file or standard input."),
    "consume": Entry("ringmq.cli.consume", "consume", "Print messages as a member of a consumer group."),
    "top": Entry("ringmq.cli.top", "top", "Watch a broker live: rates, lag, stages, workers."),
    "ha": Entry("ringmq.cli.ha", "ha", "See how replication stands, decide about slaves that differ."),
    "store": Entry("ringmq.cli.store_repair", "store", "Inspect, verify, repair a store, count what waits unserved."),
    "config": Entry("ringmq.cli.config", "config", "Check a configuration, show it, reload it, list all properties."),
    "doctor": Entry("ringmq.cli.doctor", "doctor", "Look at this machine and a store: what is well, what to correct."),
    "debug": Entry("ringmq.cli.debug", "debug", "Collect what an inquiry needs in one archive."),
    "bench": Entry("ringmq.cli.bench", "bench", "Measure a broker."),
}
"""Those that are no guest's."""


def commands() -> dict[str, Entry]:
    """All commands, in the order of the help."""
    from ringmq.ipc.guests import guests

    entries = list(COMMANDS.items())
    for command in (command for guest in guests() for command in guest.commands if not command.group):
        module, _, attribute = command.function.partition(":")
        names = [name for name, _ in entries]
        at = names.index(command.after) + 1 if command.after in names else len(names)
        entries.insert(at, (command.name, Entry(module, attribute, command.help)))
    return dict(entries)


_EXTRA_OF = {"locust": "loadtest", "matplotlib": "loadtest", "numba": "kernels", "pyarrow": "arrow"}
"""Module -> its extra, where that is not `broker`."""


class LazyGroup(click.Group):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module. A part that is not installed gives an error that names it."""
        entry = commands().get(cmd_name)
        if entry is None:
            return None
        try:
            command = getattr(importlib.import_module(entry.module), entry.attribute)
        except ModuleNotFoundError as error:
            raise _not_installed(cmd_name, error) from error
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Many commands import their parts only now."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            from ringmq.remoting.printable import printable_lines

            # a remark of a server, or a name of a client; click declares the attribute final
            vars(error)["message"] = printable_lines(error.message)
            raise
        except ImportError as error:
            from ringmq.native import NativeMissingError

            if not isinstance(error, ModuleNotFoundError | NativeMissingError):
                raise
            raise _not_installed(ctx.invoked_subcommand or "ringmq", error) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in commands().items()])


def _not_installed(command: str, error: ImportError) -> click.ClickException:
    from ringmq.client.extras import not_installed

    if not isinstance(error, ModuleNotFoundError):
        return click.ClickException(f"{command}: {error}")  # the C core, whose error says what is missing
    module = (error.name or "").partition(".")[0]
    return click.ClickException(not_installed(command, error.name, _EXTRA_OF.get(module, "broker")))


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"ringmq {version('ringmq')}")
        ctx.exit()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Version.")
def main() -> None:
    """RingMQ: a RocketMQ-compatible message broker.

    Start everything with `ringmq serve`, then try `ringmq produce Hello -m hi` and `ringmq consume Hello`.
    """


if __name__ == "__main__":
    main()
