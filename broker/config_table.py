"""Prints docs/properties.md: `python -m ringmq.broker.config_table > docs/properties.md`."""

from __future__ import annotations

from ringmq.broker.config import property_table

HEAD = """\
# Properties

Every property that means something here, from the table in `broker/config.py` (a test compares). Names are RocketMQ's;
those that begin with `ringmq` are ours. Other names of RocketMQ are taken with a notice, unknown ones are refused.
"Live" ones can be changed while the broker runs (`mqadmin updateBrokerConfig`); such a change lasts until the next
start.

| Property | Default | Accepted | Live |
|---|---|---|---|
"""


def markdown() -> str:
    """The whole page."""
    rows = []
    for name, (_, entry) in property_table().items():
        default, live = entry.text(entry.default) or "(empty)", "yes" if entry.live else ""
        rows.append(f"| {name} | {default} | {_cell(entry.accepted)} | {live} |\n")
    return HEAD + "".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(markdown(), end="")
