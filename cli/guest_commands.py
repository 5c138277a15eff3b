"""Commands of guests in groups of the command line."""

from __future__ import annotations

import click


def add_commands(to: click.Group, group: str) -> None:
    """Add the commands that rows of guests name for this group."""
    from ringmq.ipc.guests import guests
    from ringmq.ipc.named_functions import function_of

    for command in (command for guest in guests() for command in guest.commands):
        if command.group == group:
            to.add_command(function_of(command.function))
