"""Scenario files: documents in which events go into a core and effects come out.

core: master                      the first line: whose story it is
Prose stands anywhere.
    brokerRole = SYNC_MASTER      indented: a property of the core
@1000 tick                        an event at 1000 ms
  > state LOST, 1 in sync         each effect of it, in order; all of them and no others
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Stage(Protocol):
    """A core and what it needs around it."""

    def play(self, event: str, now_ms: int) -> list[str]:
        """Perform the event's line, return the lines of its effects."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """One event with what has to come of it."""

    line: int
    now_ms: int
    event: str
    effects: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file."""

    core: str
    properties: dict[str, str]
    moments: list[Moment]


def read(path: Path) -> Scenario:
    """Parse a file; ValueError for an effect that no event stands before."""
    core, properties, moments = "", {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("core:"):
            core = line.removeprefix("core:").strip()
        elif event := re.fullmatch(r"@(\d+) +(.+)", line):
            moments.append(Moment(number, int(event[1]), event[2].strip()))
        elif effect := re.fullmatch(r" +> (.+)", line):
            if not moments:
                raise ValueError(f"{path.name}:{number}: an effect before any event")
            moments[-1].effects.append(effect[1].strip())
        elif setting := re.fullmatch(r" {4,}(\w+) = (.*)", line):
            properties[setting[1]] = setting[2].strip()
    return Scenario(core, properties, moments)


def differences(path: Path, stage: Callable[[Scenario], Stage]) -> Iterator[str]:
    """What a file says differently from what happens."""
    scenario = read(path)
    played = stage(scenario)
    for moment in scenario.moments:
        happened = played.play(moment.event, moment.now_ms)
        if happened != moment.effects:
            said = "\n".join(f"  > {effect}" for effect in happened) or "  (nothing)"
            yield f"{path.name}:{moment.line}: @{moment.now_ms} {moment.event}\nhappened:\n{said}"


Meaning = Callable[..., list[str] | None]
"""Performs an event. Returns the lines of its effects, None if the stage has them."""


class Phrases:
    """Patterns of event lines with what they mean; groups are named, digits become numbers."""

    def __init__(self) -> None:
        self._known: list[tuple[re.Pattern[str], Meaning]] = []

    def __call__(self, pattern: str) -> Callable[[Meaning], Meaning]:
        def keep(meaning: Meaning) -> Meaning:
            self._known.append((re.compile(pattern), meaning))
            return meaning

        return keep

    def perform(self, stage: object, event: str, now_ms: int) -> list[str]:
        """Run the meaning of the first pattern that fits; ValueError when none does."""
        for pattern, meaning in self._known:
            if found := pattern.fullmatch(event):
                words = {name: text for name, text in found.groupdict().items() if text is not None}
                values = {name: int(text) if text.isdigit() else text for name, text in words.items()}
                return meaning(stage, now_ms, **values) or []
        raise ValueError(f"no event reads like this: {event}")


def check(path: Path, stages: Mapping[str, Callable[[Scenario], Stage]]) -> None:
    """Every moment of the file happens as written. `stages`: by the name of the core."""
    found = list(differences(path, stages[read(path).core]))
    assert not found, "\n\n".join(found)
