"""Rules of the C core: arrows between its rooms (folders of native/src) point one way, and files have no circles."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "native" / "src"
MAY_INCLUDE = {
    "base": set(),
    "plane": {"base"},
    "metrics": {"base", "plane"},
    "codec": {"base", "plane"},
    "engine": {"plane"},
    "log": {"plane", "codec"},
    "queue": {"base", "plane", "engine", "log", "filter"},
    "index": {"base", "plane", "codec", "engine", "log"},
    "recovery": {"base", "codec", "queue", "index"},
    "filter": {"base", "plane", "codec"},
    "admission": {"base", "plane", "codec"},
    "reader": {"base", "plane", "metrics", "codec", "engine", "log", "queue", "filter", "admission"},
    "dispatch": {"base", "plane", "codec", "engine", "log", "queue", "index"},
    "write": {"base", "plane", "metrics", "codec", "log", "dispatch"},
    "flush": {"plane", "metrics", "engine", "log"},
    "ha": {"base", "plane", "codec", "log"},
    "services": {"base", "plane", "metrics", "codec", "queue", "admission"},
    "timer": {"base", "plane", "metrics", "codec", "log", "queue", "index", "services"},
    "pop": {"base", "plane", "metrics", "codec", "log", "queue", "filter", "services"},
    "spark": {"base", "codec", "queue"},
}
"""Each room stands below those that include it."""
PART_OF = {
    "parked_runs": "pulls", "pull_decode": "pulls", "pull_filter": "pulls", "pull_scan": "pulls",
    "completions": "sends", "redo_rules": "sends", "send_requests": "sends", "send_target": "sends",
    "slot_counts": "sends", "uniq_keys": "sends", "routes": "frames", "stalls": "frames", "verdicts": "cold",
    "held_asks": "cold", "sending": "output", "spans": "input",
}  # fmt: skip
"""The part of each other file of the reader. Files of one part may call one another."""
ROW_COLUMNS = 40
READER_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
CONNECTION_OWNERS = {
    "output": {"connection_output.h", "output.h", "output.c", "sending.c"},
    "sends": {"connection_sends.h", "sends.h", "sends.c", "send_requests.c"},
    "input": {"input.h", "input.c", "frames.c", "stalls.c"},
    "parked": {"connection_parked.h", "parking.h", "parking.c"},
    "cold": {"connection_cold.h", "cold.h", "cold.c", "verdicts.c"},
}
"""For each part's struct in a connection, the files that may touch it. Others hand it to functions of these."""


def sources() -> Iterator[tuple[str, str, str]]:
    """(room, path below native/src, text without comments) of each file."""
    for path in sorted(SOURCES.rglob("*.[ch]")):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        name = path.relative_to(SOURCES).as_posix()
        yield name.rpartition("/")[0], name, text


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The groups of names of which each leads to all others of its group."""
    reach = {name: {name} for name in graph}
    changed = True
    while changed:
        changed = False
        for name, seen in reach.items():
            more = seen.union(*(graph.get(other, set()) for other in seen))
            changed |= more != seen
            reach[name] = more
    groups = {frozenset(other for other in seen if name in reach.get(other, ())) for name, seen in reach.items()}
    return sorted((set(group) for group in groups if len(group) > 1), key=min)


def below(room: str) -> set[str]:
    """All rooms that it includes, directly or not."""
    return MAY_INCLUDE[room].union(*(below(other) for other in MAY_INCLUDE[room]))


def calls() -> dict[str, set[str]]:
    """For each C file, without its ending, the files whose functions it names, by inline functions too."""
    home, inline = functions()
    assert len(home) > 500 and len(inline) > 90
    graph = {}
    for _, name, text in sources():
        if name.endswith(".c"):
            named, seen = set(re.findall(r"\brmq_\w+", text)), set()
            while more := named - seen:
                seen |= more
                named = named.union(*(inline.get(function, set()) for function in more))
            file = name.removesuffix(".c")
            graph[file] = {home[function] for function in named if function in home} - {file}
    return graph


def functions() -> tuple[dict[str, str], dict[str, set[str]]]:
    """The file that defines each function of the core, and the names that each inline function of a header holds."""
    defined = re.compile(r"^(?!static (?!inline\b))\w[^\n;={}()]*?\b(rmq_\w+)\([^;{]*\)\s*\{", re.MULTILINE)
    home, inline = {}, {}
    for _, name, text in sources():
        for match in defined.finditer(text):
            if name.endswith(".c"):
                home[match[1]] = name.removesuffix(".c")
            else:
                inline[match[1]] = set(re.findall(r"\brmq_\w+", text[match.end() : end_of(text, match.end())]))
    return home, inline


def end_of(text: str, at: int) -> int:
    """The place behind the brace that closes the one before `at`."""
    depth = 1
    while depth:
        at = min(place for place in (text.find("{", at), text.find("}", at)) if place >= 0) + 1
        depth += 1 if text[at - 1] == "{" else -1
    return at


def test_every_file_is_in_a_room() -> None:
    assert {room for room, _, _ in sources()} == set(MAY_INCLUDE)


def test_includes_name_their_room() -> None:
    """A bare name would find a file of the same folder too, and hide an arrow after a move."""
    bare = [f"{name}: {found}" for _, name, text in sources() for found in re.findall(r'#include "([^"/]*)"', text)]
    assert not bare


def test_arrows_between_rooms_point_one_way() -> None:
    includes: dict[str, set[str]] = {room: set() for room in MAY_INCLUDE}
    for room, _, text in sources():
        includes[room] |= set(re.findall(r'#include "(\w+)/', text)) - {room}
    assert includes == MAY_INCLUDE
    assert not circles(MAY_INCLUDE)


def test_the_table_of_rooms_lists_the_arrows() -> None:
    listed = {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        if row := re.fullmatch(r"\| `native/src/(\w+)/` \| .* \| ([^|]*) \|", line):
            listed[row[1]] = set(re.findall(r"\w+", row[2])) - {"nothing"}
    assert listed == MAY_INCLUDE


def test_the_drawing_of_rooms_shows_the_nearest_arrows() -> None:
    """Each room once, above all that it includes, with the rooms that it includes through no other one."""
    row, rows, nearest = 0, {}, {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        if not re.match(r" {2}(?:\d| ) {3}\w+ \(", line):
            continue
        row = int(line[2]) if line[2] != " " else row
        for room, names in re.findall(r"(\w+) \(([\w ]*)\)", line):
            assert room not in rows
            rows[room], nearest[room] = row, set(names.split())
    assert set(rows) == set(MAY_INCLUDE)
    for room, included in MAY_INCLUDE.items():
        assert all(rows[other] < rows[room] for other in included)
        assert nearest[room] == included - set().union(*(below(other) for other in included)), room


def test_files_have_no_circles() -> None:
    """A function of a file calls none of a file that needs it."""
    assert not circles(calls())


def test_parts_of_the_reader_call_parts_of_lower_rows() -> None:
    """The rows of ARCHITECTURE.md, the highest first. Rules without state are below all."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawing = page.partition("## The parts of a read worker")[2].split("```")[1].strip("\n")
    rows = [line[:ROW_COLUMNS].split() for line in drawing.splitlines()]
    row_of = {PART_OF.get(name, name): row for row, names in enumerate(rows) for name in names}
    needs: dict[str, set[str]] = {}
    for name, needed in calls().items():
        room, _, file = name.rpartition("/")
        if room == "reader" and not file.endswith("_rules"):
            below = {other.removeprefix("reader/") for other in needed if other.startswith("reader/")}
            parts = {PART_OF.get(other, other) for other in below if not other.endswith("_rules")}
            needs.setdefault(PART_OF.get(file, file), set()).update(parts)
    assert set(needs) == set(row_of) - {"context"}
    assert not [(part, other) for part in needs for other in needs[part] - {part} if row_of[other] <= row_of[part]]


def test_only_the_reader_itself_takes_the_whole_reader() -> None:
    """A part's functions take the part. What holds several parts is wired in reader.c."""
    takers = {name for _, name, text in sources() if re.search(r"\bstruct rmq_reader\b", text)}
    assert takers == {"reader/reader.c", "reader/reader.h"}


def test_no_part_touches_what_another_keeps_of_a_connection() -> None:
    touched = {
        (member, name.removeprefix("reader/"))
        for room, name, text in sources()
        if room == "reader"
        for member in re.findall(r"(?<!\br)(?:->|\.)(output|sends|input|parked|cold)\.\w", text)
    }
    assert {(member, name) for member, name in touched if name not in CONNECTION_OWNERS[member]} == set()
    assert {member for member, _ in touched} == set(CONNECTION_OWNERS)


def test_connections_alone_changes_its_own_fields_of_a_connection() -> None:
    """Others may read which connection it is, whether it is open, and since when it waits."""
    header = (SOURCES / "reader" / "connection.h").read_text()
    body = re.search(r"struct rmq_connection \{\n(.*?)\n\};", header, re.DOTALL)
    assert body
    own = re.findall(r"\bu?int\d*(?:_t)? (\w+)", body[1])
    assert {"state", "host", "waits_since_ms"} <= set(own)
    of = r"\b(?:c|worst|victim|first|least|waiting)"
    change = re.compile(rf"{of}->({'|'.join(own)})(?:\[[^]]*\])? *(?:[-+|&]?=(?!=)|\+\+|--)")
    files = {name for room, name, text in sources() if room == "reader" and change.search(text)}
    assert files == {"reader/connection.h", "reader/connections.c"}


def test_files_of_the_reader_stay_small() -> None:
    lines = {name: len((SOURCES / name).read_text().splitlines()) for room, name, _ in sources() if room == "reader"}
    assert {name: count for name, count in lines.items() if count > READER_LINES_MAX} == {}


def test_no_function_is_too_long() -> None:
    """From the line of its name to its last brace."""
    long = []
    for path in sorted(SOURCES.rglob("*.[ch]")):
        first, lines = 0, path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if re.match(r"[a-z].*\(", line) and not line.endswith(";"):
                first = number
            if line == "}" and first and number - first >= FUNCTION_LINES_MAX:
                long.append(f"{path.name}: {lines[first - 1]}")
    assert not long


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"e"}, "e": {"d"}}, [{"a", "b", "c"}, {"d", "e"}]),
    ],
)
def test_circles_are_found(graph: Mapping[str, set[str]], found: list[set[str]]) -> None:
    assert circles(graph) == found
