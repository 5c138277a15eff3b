"""Prints docs/namesrv-properties.md: `python -m ringmq.namesrv.config_table > docs/namesrv-properties.md`."""

from __future__ import annotations

import dataclasses

from ringmq.namesrv.config import BLACK_LIST, NamesrvConfig

HEAD = """\
# Properties of the name server

From the table in `namesrv/config.py` (a test compares). They stand in `namesrv.conf`
(`ringmq namesrv -c namesrv.conf`) or are given as `--set NAME=VALUE`. Names are RocketMQ's; those that begin with
`ringmq` are ours. An unknown name is refused with the nearest known one. "Live" ones can be changed while it runs
(`mqadmin updateNamesrvConfig`); such a change lasts until the next start.

| Property | Default | Accepted | Live |
|---|---|---|---|
"""


def markdown() -> str:
    """The whole page."""
    rows = []
    for field in dataclasses.fields(NamesrvConfig):
        name, value = field.metadata["name"], field.default
        accepted = "text"
        if isinstance(value, bool):
            accepted = "true or false"
        elif isinstance(value, int):
            accepted = f"a whole number {field.metadata['low']}..{field.metadata['high']}"
        default = str(value).lower() if isinstance(value, bool) else str(value) or "(empty)"
        rows.append(f"| {name} | {default} | {accepted} | {'' if name in BLACK_LIST else 'yes'} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    print(markdown(), end="")
