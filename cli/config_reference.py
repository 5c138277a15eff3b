"""The reference page of all properties: `ringmq config reference > docs/properties.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill

from ringmq.remoting.networks import ACCEPTED
from ringmq.remoting.properties_reference import DIFFERS, OURS, ReferenceRow

HEAD = f"""\
# Properties

The tables list every property that has an effect in RingMQ. `ringmq config reference` prints this page.

- RocketMQ's names mean the same as in RocketMQ 5.3, with the listed differences. RingMQ accepts RocketMQ's other names
  with a notice. It refuses unknown names and suggests the nearest known name.
- *live*: `mqadmin updateBrokerConfig` or `mqadmin updateNamesrvConfig` changes it until the next start.
- *networks*: {ACCEPTED.replace("joined by ; (", "joined by `;` (`").replace(")", "`)")}; empty = every host.
- *switch*: true or false.
- `ringmq config check broker.conf` names faults, `ringmq config show -c broker.conf` values in use with their sources.
- Most used: `bindAddress=0.0.0.0` (clients on other hosts), `flushDiskType=SYNC_FLUSH` (a send waits for the disk),
  `fileReservedTime` (hours that messages stay).
"""
LINE_MAX = 121
"""Characters of a line and its end."""
_SOURCES = {
    "Broker": "Set these in `broker.conf`, as `RINGMQ_...` in the environment, or with `--set NAME=VALUE`; later ones "
    "win.",
    "Name server": "Set these in `namesrv.conf` or with `--set NAME=VALUE`, which wins.",
}


def markdown(
    broker: Sequence[ReferenceRow], namesrv: Sequence[ReferenceRow], fixed: Mapping[str, str], meaningless: int
) -> str:
    """Return the whole page. `fixed`: names of RocketMQ with the value that RingMQ has fixed. `meaningless`: the number
    of its names that have no meaning in RingMQ."""
    return HEAD + _server("Broker", broker) + _fixed(fixed, meaningless) + _server("Name server", namesrv)


def _fixed(values: Mapping[str, str], meaningless: int) -> str:
    names = ", ".join(f"{name} = {value}" for name, value in values.items())
    text = (
        f"{names}. Request 26 shows these after the properties. It leaves out {meaningless} other names of RocketMQ, "
        "which have no meaning here, such as pools of threads, buffers of netty, other engines and access by users."
    )
    return f"\n### RocketMQ's properties with a fixed value\n\n{fill(text, LINE_MAX - 1)}\n"


def _server(title: str, rows: Sequence[ReferenceRow]) -> str:
    own = [row for row in rows if row.rocketmq.startswith(OURS)]
    shared = [row for row in rows if row not in own]
    switches = [row for row in shared if row.kind == "switch"]
    settable = [row for row in shared if row not in switches or _may_be_set(row)]
    others = [row for row in shared if row not in switches]
    return (
        f"\n## {title}\n\n{_SOURCES[title]}\n\n### RocketMQ's properties\n\n"
        + _table("Property", "Default", "Accepted", rows=map(_values, others))
        + "\n### RocketMQ's switches\n\n"
        + _switches(switches)
        + "\n### Differences from RocketMQ\n\n"
        + _table("Property", "Difference", rows=_differences(settable))
        + "\n### RingMQ's own properties\n\n"
        + _table(
            *("Property", "Default", "Accepted", "Meaning"),
            rows=((*_values(row), row.rocketmq.removeprefix(OURS)) for row in own),
        )
    )


def _may_be_set(switch: ReferenceRow) -> bool:
    return switch.accepted == "true or false"


def _switches(rows: Sequence[ReferenceRow]) -> str:
    """A list of names for each default."""
    names: dict[str, list[str]] = {}
    for row in rows:
        head = (
            f"default {row.default}{', live' * row.live}" if _may_be_set(row) else f"{row.default} alone, not built yet"
        )
        names.setdefault(head, []).append(row.name)
    texts = (f"- {head}: {', '.join(its_names)}" for head, its_names in sorted(names.items()))
    return "".join(fill(text, LINE_MAX - 1, subsequent_indent="  ") + "\n" for text in texts)


def _differences(rows: Sequence[ReferenceRow]) -> Iterator[tuple[str, str]]:
    """Names with the same difference share a row, at most two of them."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.rocketmq.startswith(DIFFERS):
            names.setdefault(row.rocketmq.removeprefix(DIFFERS), []).append(row.name)
    for text, its_names in names.items():
        for first in range(0, len(its_names), 2):
            yield ", ".join(its_names[first : first + 2]), text


def _values(row: ReferenceRow) -> tuple[str, str, str]:
    text = row.accepted.replace("true or false", "switch").removeprefix("a whole number ")
    if row.accepted.startswith(ACCEPTED):
        text = "networks"
    elif row.kind == "choice":
        text = text.replace(" or ", ", ")
    return row.name, row.default or "(empty)", text + (", live" if row.live else "")


def _table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    return _line(head) + "|" + "---|" * len(head) + "\n" + "".join(map(_lines, rows))


def _lines(cells: tuple[str, ...]) -> str:
    """One line; two where the last cell would not fit."""
    line = _line(cells)
    return line if len(line) <= LINE_MAX else _line((*cells[:-1], "")) + _line(("",) * (len(cells) - 1) + cells[-1:])


def _line(cells: tuple[str, ...]) -> str:
    return (
        "|" + "".join(f" {cell} |".replace("  ", " ") for cell in (text.replace("|", "\\|") for text in cells)) + "\n"
    )
