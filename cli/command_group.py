"""Groups of commands whose help tells what each command does in a whole sentence."""

from __future__ import annotations

import click

SENTENCE_CHARS_MAX = 1000


class CommandGroup(click.Group):
    """A group as click has it. Click itself cuts the sentence of a command at the end of the line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands. A long sentence takes several lines."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(SENTENCE_CHARS_MAX)) for name, command in found if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
