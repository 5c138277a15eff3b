"""docs/limits.md names every property that bounds a resource, with the default that the code has."""

import re
from pathlib import Path

from ringmq.broker.config import table as broker_table
from ringmq.namesrv import config_table as name_server_table

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
DEFAULTS = {row.name: row.default for table in (broker_table, name_server_table) for row in table.rows()}
UNITS = {"": 1, " KiB": 1 << 10, " MiB": 1 << 20, " s": 1000}
"""Times of our own are in ms."""
_VALUE = re.compile(
    r"\((half of )?`(ringmq\w+)`\)"  # the property of a row
    r"(?:: | \| )(\d[\d,]*)( [KM]iB| s)?(?= *\||, half for|$)",  # and its default
    re.MULTILINE,
)


def test_each_bound_with_a_property_is_on_the_page() -> None:
    bounds = {name for name in DEFAULTS if name.startswith("ringmq") and "Max" in name}
    assert len(bounds) > 20
    assert {name for name in bounds if f"`{name}`" not in PAGE} == set()


def test_each_property_on_the_page_exists() -> None:
    named = set(re.findall(r"`(ringmq[A-Z]\w+)`", PAGE))
    assert named - set(DEFAULTS) == set()


def test_the_defaults_are_those_of_the_code() -> None:
    found = _VALUE.findall(PAGE)
    wrong = {
        name: f"{number}{unit}"
        for half, name, number, unit in found
        if int(number.replace(",", "")) * UNITS[unit] * (2 if half else 1) != int(DEFAULTS[name])
    }
    assert wrong == {}
    assert len(found) > 18, sorted(name for _, name, _, _ in found)
