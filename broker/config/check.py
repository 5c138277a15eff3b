"""All problems of a broker's configuration, and the source of each value in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig, nearest_name, parse_value, property_table
from ringmq.broker.config.property_types import Value
from ringmq.broker.config.relations import contradictions
from ringmq.broker.config.sources import Setting
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.remoting.properties_check import FAIL, WARN, Problem, repeated
from ringmq.remoting.properties_text import PropertyLine


class EffectiveValue(Struct, frozen=True):
    """One property with the value that a broker would use."""

    name: str
    value: str
    default: str
    place: str
    """`default`, or the file and line, environment variable or option that sets it."""
    live: bool


def check_lines(lines: Sequence[PropertyLine]) -> list[Problem]:
    """Every problem of a broker.conf, by line. Relations between values are checked once each value is valid."""
    problems = list(repeated(lines))
    table = property_table()
    values: dict[str, Value] = {}
    lines_by_name = {line.name: line for line in lines}
    for line in lines:
        if line.name in table:
            value, found = _value_of(line)
            problems += found
            if value is not None and lines_by_name[line.name] is line:
                values[table[line.name][0]] = value
        elif line.name in STOCK_PROPERTY_NAMES:
            problems.append(Problem(WARN, line.line, line.name, "a RocketMQ property without effect in RingMQ"))
        else:
            near = nearest_name(line.name)
            problems.append(Problem(FAIL, line.line, line.name, "not a known property", nearest=near))
    if all(problem.accepted is None for problem in problems):
        config = replace(BrokerConfig(), **values)  # type: ignore[arg-type]
        for found_pair in contradictions(config):
            known = lines_by_name.get(found_pair.name)
            problems.append(Problem(FAIL, known.line if known else 0, found_pair.name, found_pair.message))
    return sorted(problems, key=lambda problem: problem.line)


def _value_of(line: PropertyLine) -> tuple[Value | None, list[Problem]]:
    _, entry = property_table()[line.name]
    try:
        value = parse_value(line.name, line.value)
    except ValueError:
        message = f"{line.value[:200]!r} is impossible"
        return None, [Problem(FAIL, line.line, line.name, message, accepted=entry.accepted)]
    if entry.kind == "number" and int(line.value) != value:
        return value, [Problem(WARN, line.line, line.name, f"{line.value.strip()} counts as {value}")]
    return value, []


def effective_values(settings: Iterable[Setting]) -> list[EffectiveValue]:
    """Each property in the table's order. `settings`: later ones win, and unknown names are ignored.

    Raises ConfigError for an invalid value.
    """
    last = {setting.name: setting for setting in settings}
    values = []
    for name, (_, entry) in property_table().items():
        default = entry.text(entry.default)
        value, place = default, "default"
        if name in last:
            value, place = entry.text(parse_value(name, last[name].value)), last[name].place
        values.append(EffectiveValue(name, value, default, place, entry.live))
    return values
