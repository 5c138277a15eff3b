"""The reference page of all properties: `ringmq config reference > docs/properties.md`."""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.remoting.properties_reference import ReferenceRow

HEAD = """\
# Properties

Every property that means something here, printed from the tables in `broker/config/` and `namesrv/config.py` by
`ringmq config reference` (a test compares). Other names of RocketMQ are taken with a notice, unknown ones are refused
with the nearest known one. "Live" ones can be changed while the server runs (`mqadmin updateBrokerConfig`,
`mqadmin updateNamesrvConfig`); such a change lasts until the next start. The last column says how the name stands to
RocketMQ 5.3's: the same name and meaning, what differs there, or none of that name and what ours means.

`ringmq config check broker.conf` says what is wrong in a file, `ringmq config show -c broker.conf` which values would
be used and where each comes from.
"""
_COLUMNS = """\
| Property | Type | Default | Accepted | Live | RocketMQ |
|---|---|---|---|---|---|
"""


def markdown(broker: Sequence[ReferenceRow], namesrv: Sequence[ReferenceRow]) -> str:
    """Return the whole page."""
    return (
        f"{HEAD}\n## Broker\n\nIn `broker.conf`, as `RINGMQ_...` in the environment, or as `--set NAME=VALUE`.\n\n"
        f"{_table(broker)}\n## Name server\n\nIn `namesrv.conf`, or as `--set NAME=VALUE`.\n\n{_table(namesrv)}"
    )


def _table(rows: Sequence[ReferenceRow]) -> str:
    lines = (
        f"| {row.name} | {row.kind} | {_cell(row.default) or '(empty)'} | {_cell(row.accepted)} "
        f"| {'yes' if row.live else ''} | {_cell(row.rocketmq)} |\n"
        for row in rows
    )
    return _COLUMNS + "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
