"""monitoring/dashboard.json against the types that Grafana publishes, made from its schemas.

Read into them and written again: what they do not know is lost on the way. What is in them has the type they say.
"""

import copy
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

FILE = Path(__file__).parents[2] / "monitoring" / "dashboard.json"


@pytest.fixture(scope="module", autouse=True)
def known_plugins() -> None:
    """Without them queries and options of panels pass as they are."""
    plugins.register_default_plugins()


@pytest.fixture
def given() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict):
        for key, value in before.items():
            if not isinstance(after, dict) or key not in after:
                yield f"{path}.{key}"
            else:
                yield from lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list):
        if not isinstance(after, list) or len(after) != len(before):
            yield path
        else:
            for number, value in enumerate(before):
                yield from lost(value, after[number], f"{path}[{number}]")
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


def misfits(value: Any, hint: Any, path: str = "") -> Iterator[str]:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:  # options of a panel, by its plugin
        hint = type(value)
    if origin in (Union, UnionType):
        found = [list(misfits(value, one, path)) for one in inner]
        if all(found):
            yield from min(found, key=len)
    elif origin is Literal:
        if value not in inner:
            yield f"{path}: {value!r}"
    elif origin is list and isinstance(value, list):
        for number, item in enumerate(value):
            yield from misfits(item, inner[0], f"{path}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for key, item in value.items():
            yield from misfits(item, inner[1], f"{path}.{key}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        if value not in [*hint, *(member.value for member in hint)]:
            yield f"{path}: {value!r} is no {hint.__name__}"
    elif not isinstance(value, (int, float) if hint is float else origin or hint) or (
        isinstance(value, bool) and hint in (int, float)
    ):
        yield f"{path}: {value!r} is no {hint}"
    elif hasattr(value, "__dict__"):
        for name, of in get_type_hints(type(value)).items():
            if hasattr(value, name):
                yield from misfits(getattr(value, name), of, f"{path}.{name}")


def complaints(given: dict[str, Any]) -> list[str]:
    read = Dashboard.from_json(given)
    unknown = [panel["type"] for panel in given["panels"] if runtime.panelcfg_config(panel["type"]) is None]
    again = json.loads(JSONEncoder().encode(read))
    return [*unknown, *lost(given, again), *misfits(read, Dashboard)]


def test_grafana_knows_every_field_of_the_dashboard(given: dict[str, Any]) -> None:
    assert complaints(given) == []
    assert len({panel["id"] for panel in given["panels"]}) == len(given["panels"])
    assert {target["datasource"]["type"] for panel in given["panels"] for target in panel["targets"]} == {"prometheus"}


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("panels", 0), "tittle", "x"),
        (("panels", 0), "type", "graf"),
        (("panels", 0, "gridPos"), "w", "wide"),
        (("panels", 0, "fieldConfig", "defaults"), "unitt", "s"),
        (("panels", 0, "targets", 0), "exprr", "up"),
        (("panels", 0, "targets", 0), "expr", 7),
        (("panels", 6, "options"), "legnd", {}),
        (("panels", 6, "options", "legend"), "displayMode", "lost"),
    ],
)
def test_what_grafana_would_not_know_is_found(
    given: dict[str, Any], path: tuple[str | int, ...], key: str, value: Any
) -> None:
    place: Any = copy.deepcopy(given)
    changed = place
    for step in path:
        place = place[step]
    place[key] = value
    assert len(complaints(changed)) == 1
