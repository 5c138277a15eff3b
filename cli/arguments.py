"""Arguments that several commands take in the same form."""

from __future__ import annotations

from collections.abc import Iterable

import click

from ringmq.remoting.properties_text import BadProperties, parse_assignments


def pairs(texts: Iterable[str], option: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """Return the values of a repeatable option. Raises click.BadParameter naming the option and the form."""
    try:
        return parse_assignments(texts, form)
    except BadProperties as error:
        raise click.BadParameter(str(error), param_hint=option) from error
