"""Rules of the architecture: imports point one way, files and functions stay small, pages list what exists."""

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ringmq.ipc.guests import FOLDERS

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "native": set(),
    "ipc": {"native", "remoting"},
    "fastjson": set(),
    "filters": set(),
    "remoting": {"native", "fastjson"},
    "store": {"native", "fastjson"},
    "ha": {"native", "ipc", "remoting", "store"},
    "broker": {"native", "ipc", "filters", "remoting", "store", "ha"},
    "services": {"native", "ipc", "remoting", "store", "broker", "client", "cli"},
    "timer": {"native", "ipc", "fastjson", "remoting", "store", "ha", "broker", "services"}
    | {"client", "cli", "doctor"},
    "pop": {"native", "ipc", "fastjson", "filters", "remoting", "store", "ha", "broker", "services"}
    | {"client", "cli", "doctor"},
    "doctor": {"native", "ipc", "remoting", "store", "broker"},
    "namesrv": {"ipc", "remoting"},
    "client": {"remoting"},
    "cli": {"client", "remoting"},
    "spark_bridge": {"native", "ipc", "store", "client"},
    "loadtest": {"client", "remoting"},
    "testing": {"client", "remoting", "cli", "loadtest"},
}
# Imports inside functions only: `--help` must load none of these.
MAY_IMPORT_LAZILY = {
    "cli": {"store", "ipc", "native", "broker", "doctor", "namesrv", "loadtest"},
    "client": {"native"},
    # For the Spark bench, the segments that a killed broker leaves, and the worker of bench-port (a service).
    "loadtest": {"spark_bridge", "ipc", "native", "store", "services", "filters"},
}
# Files of tests that poll by themselves: the helper, programs without it, and loops that do something else meanwhile.
POLLS = {
    "waiting.py", "suite/leftovers.py",
    "broker/probe_worker.py", "service/machine.py", "service/restart_load.py", "upgrade/version_kit.py",
    "ha/raw_slave.py", "ha/scripted_slave.py", "spark_bridge/stream_drill.py",
    "broker/test_delay_faults.py", "client/test_consumer_servers.py", "namesrv/test_service_report.py",
}  # fmt: skip
# Subpackages of the two largest packages. Modules beside them may be imported by all of them.
SUBPACKAGES = {
    "broker": {
        "config": set(),
        "requests": {"config"},
        "tables": {"config", "requests"},
        "assignment": {"config", "requests", "tables"},
        "replication": {"config", "tables", "requests"},
        "handlers": {"config", "requests", "tables", "assignment", "replication"},
        "exporter": {"config", "requests", "replication"},
    },
    "client": {
        "runtimes": set(),
        "security": set(),
        "connections": {"runtimes", "security"},
        "producing": {"runtimes", "security", "connections"},
        "consuming": {"runtimes", "connections"},
        "popping": {"runtimes", "connections", "consuming"},
        "observing": {"runtimes", "connections", "producing"},
    },
}
# Only the worker table makes these names.
OF_A_START = ("broker", "ipc", "store", "ha", "timer", "services", "pop", "namesrv", "filters")
DATACLASSES = {
    "BrokerConfig", "HaSettings", "NamesrvConfig", "StoreConfig", "Filing", "MasterCore", "Refuse", "TimerMessage",
}  # fmt: skip
"""Of these packages: classes whose fields have metadata, or that take no part in the arguments or in a comparison."""
WORKER_NAMES = re.compile(r"""["']read-""")
NAMES_WORKERS = {"ipc/workers.py"}
DRILLS = "loadtest"
"""Drills inject faults into workers by name. The order of faults depends on the seed."""
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def python_files() -> Iterator[Path]:
    for folder in MAY_IMPORT:
        yield from sorted((ROOT / folder).rglob("*.py"))


def imported_packages(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "ringmq" else [module]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "ringmq" and len(parts) > 1:
                yield parts[1]


def top_level(tree: ast.Module) -> ast.Module:
    """The module without function bodies."""
    kept = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in kept:
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    return ast.Module(kept, [])


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_one_way(folder: str) -> None:
    allowed = MAY_IMPORT[folder] | {folder}
    lazily = allowed | MAY_IMPORT_LAZILY.get(folder, set())
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in imported_packages(tree) if name not in lazily]
        outside = imported_packages(top_level(tree))
        wrong += [f"{path.relative_to(ROOT)} imports {name} at the top" for name in outside if name not in allowed]
    assert not wrong


def test_only_the_table_of_ports_knows_how_many_readers_there_are() -> None:
    """Other modules ask native/src/plane/port.h or ipc/ports.py. The worker table and placement name the bound."""
    counts = re.compile(r"RMQ_(READERS|PRODUCERS)_MAX|RMQ_CONTROL_PRODUCER|settings(\.|->)readers|RMQ_ROLE_READ *\+")
    bound = re.compile(r"\bREADERS_MAX\b")
    folders = ("native", "ipc", "broker", "ha", "doctor", "cli", "namesrv", "store", "spark_bridge")
    files = [path for folder in folders for kind in ("*.py", "*.[ch]") for path in (ROOT / folder).rglob(kind)]
    found = {str(path.relative_to(ROOT)) for path in files if counts.search(path.read_text())}
    assert found == set()
    named = {str(path.relative_to(ROOT)) for path in files if bound.search(path.read_text())}
    assert named == {"ipc/ports.py", "ipc/placement.py", "ipc/workers.py"}


def test_only_the_worker_table_lists_workers() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in python_files() if WORKER_NAMES.search(path.read_text())}
    assert {name for name in found if not name.startswith(DRILLS)} == NAMES_WORKERS


@pytest.mark.parametrize(
    ("folder", "subpackage"), [(folder, name) for folder, names in SUBPACKAGES.items() for name in names]
)
def test_subpackages_point_one_way(folder: str, subpackage: str) -> None:
    others = set(SUBPACKAGES[folder]) - SUBPACKAGES[folder][subpackage] - {subpackage}
    wrong = []
    for path in sorted((ROOT / folder / subpackage).glob("*.py")):
        imported = re.findall(rf"from ringmq\.{folder}(?:\.(\w+)\S*)? import (.*)", path.read_text())
        names = {module or names for module, names in imported}
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in names & others]
    assert not wrong


def module_name(path: Path) -> str:
    """The name by which imports find a file. `pyspark_ringmq` is a package of its own, as Spark looks for it."""
    parts = ("ringmq", *path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[2:] if "pyspark_ringmq" in parts else parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def module_imports() -> dict[str, set[str]]:
    """Map each module to the modules that it names, also in functions and for type checkers alone."""
    known = {module_name(path): path for path in python_files()}
    imports = {}
    for module, path in known.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ImportFrom(module=str(source), names=names, level=0):
                    whole = [f"{source}.{alias.name}" for alias in names]
                    named |= {name if name in known else source for name in whole}
                case ast.ImportFrom():
                    raise AssertionError(f"{path.relative_to(ROOT)}: imports are absolute, so that a search finds them")
                case ast.Import(names=names):
                    named |= {alias.name for alias in names}
        imports[module] = (named & known.keys()) - {module}
    return imports


def circles(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left of `imports` when all is taken out that no circle needs, from both ends."""
    left = {name: set(targets) for name, targets in imports.items()}
    while ends := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in ends}
    while ends := left.keys() - set().union(*left.values()):
        left = {name: targets for name, targets in left.items() if name not in ends}
    return {name: targets & left.keys() for name, targets in left.items()}


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b": {"c"}, "c": {"b"}}
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_no_modules_import_each_other() -> None:
    """Of two modules that name each other, neither can be read, tested or deleted alone.

    The lower one gets functions as arguments, or names what it needs as a Protocol.
    """
    imports = module_imports()
    assert "ringmq.broker.config.relations" in imports["ringmq.broker.config.check"]
    assert "ringmq.spark_bridge.plan" in imports["pyspark_ringmq.batch"]
    assert not circles(imports)


def broker_imports() -> dict[str, set[str]]:
    """The imports of `broker/` between its subpackages and the modules beside them."""
    places: dict[str, set[str]] = {}

    def place_of(module: str) -> str:
        return module.split(".")[2]

    for module, named in module_imports().items():
        if module.startswith("ringmq.broker."):
            found = {place_of(name) for name in named if name.startswith("ringmq.broker.")}
            places.setdefault(place_of(module), set()).update(found - {place_of(module)})
    return places


def test_the_broker_has_no_import_circles() -> None:
    """Its subpackages, too. Handlers and tables get their dependencies as arguments, so none imports the core."""
    imports = broker_imports()
    assert "handlers" in imports["control_wiring"]
    assert not [place for place in SUBPACKAGES["broker"] if imports[place] & {"core", "control", "control_wiring"}]
    assert not circles(imports)


def test_records_of_a_start_are_structs() -> None:
    """Half of the time of an import was the making of dataclasses (docs/decisions/struct-records.md)."""
    made = re.compile(r"^@(?:dataclasses\.)?dataclass\b.*\n(?:@.*\n)*class (\w+)", re.MULTILINE)
    files = {file for folder in OF_A_START for file in (ROOT / folder).rglob("*.py")} - {*of_guests("cli")}
    assert {name for file in files for name in made.findall(file.read_text())} == DATACLASSES


NAMES_GUESTS = {"ipc/guests.py", "ipc/workers.py"}
"""The list of the folders of guests, and the table of workers."""


def test_nobody_names_a_guest() -> None:
    """The rest of the broker knows guests by their rows. So a tree without a folder that no other guest needs is a
    broker without it."""
    name = re.compile(r"ringmq\.(?:timer|services|pop)\b")
    folders = set(MAY_IMPORT) - {"services", "timer", "pop", "loadtest"}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert {path.relative_to(ROOT).as_posix() for path in files if name.search(path.read_text())} == NAMES_GUESTS


NEEDED_GUESTS = {
    "timer": {"services.transactions"},
    "services.transactions": {"services.delay"},
    "services": {"services.replies", "services.send_back", "services.staged"},
}
"""Guest, or the worker `services` -> the guests that it imports. ARCHITECTURE.md tells of them."""


def test_guests_need_no_others_than_the_page_tells() -> None:
    guests = {folder.removeprefix("ringmq.") for folder in FOLDERS}
    found: dict[str, set[str]] = {}
    for path in [path for folder in ("services", "timer", "pop") for path in (ROOT / folder).rglob("*.py")]:
        modules = set(re.findall(r"(?:from|import) ringmq\.([\w.]+)", path.read_text()))
        needed = {guest for guest in guests for name in modules if f"{name}.".startswith(f"{guest}.")}
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        owner = next((guest for guest in guests if f"{module}.".startswith(f"{guest}.")), path.parts[len(ROOT.parts)])
        if needed - {owner}:
            found.setdefault(owner, set()).update(needed - {owner})
    assert found == NEEDED_GUESTS


OF_THE_BROKER = {"metric_table": {"exporter"}, "metrics": {"exporter"}}
"""Modules of guests that import more of the broker than settings and requests."""


def test_services_import_only_settings_and_requests_of_the_broker() -> None:
    wrong = []
    for path in (ROOT / "services").rglob("*.py"):
        imported = set(re.findall(r"(?:from|import) ringmq\.broker\.?(\w*)", path.read_text()))
        allowed = {"config", "requests"} | OF_THE_BROKER.get(path.stem, set())
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in imported - allowed]
    assert not wrong


def test_the_kit_of_services_knows_no_service() -> None:
    services = {path.parent.name for path in (ROOT / "services").glob("*/__init__.py")} - {"kit"}
    imported = set()
    for path in (ROOT / "services" / "kit").rglob("*.py"):
        imported |= set(re.findall(r"(?:from|import) ringmq\.services\.(\w+)", path.read_text()))
    assert services and not imported & (services | {"republisher", "appends", "worker"})


def of_guests(folder: str) -> Iterator[Path]:
    """Modules in the folders `folder` of guests."""
    for guests in ("services", "timer"):
        yield from sorted(path for path in (ROOT / guests).rglob("*.py") if path.parent.name == folder)


def test_only_commands_of_guests_are_clients() -> None:
    """The workers of guests load no command, and a command no worker: it runs without the C core."""
    commands = set(of_guests("cli"))
    files = [path for folder in ("services", "timer") for path in (ROOT / folder).rglob("*.py")]
    clients = {path for path in files if {"cli", "client"} & set(imported_packages(ast.parse(path.read_text())))}
    assert commands >= clients > set()
    for path in commands:
        assert {"cli", "client", "remoting", *path.relative_to(ROOT).parts[:1]} >= set(
            imported_packages(top_level(ast.parse(path.read_text())))
        ), path


@pytest.mark.parametrize("folder", SUBPACKAGES)
def test_every_subpackage_is_listed(folder: str) -> None:
    assert {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")} == set(SUBPACKAGES[folder])
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(rf"^\| `{folder}/(\w+)/` \| .* \| ([^|]*) \|$", page, re.MULTILINE)
    assert {name: set(re.findall(r"\w+", text)) - {"nothing"} for name, text in rows} == SUBPACKAGES[folder]


def test_no_file_is_too_long() -> None:
    sources = [*python_files(), *(ROOT / "native/src").rglob("*.[ch]"), *(ROOT / "loadtest").glob("*/native/*.[ch]")]
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert not {name: lines for name, lines in long.items() if lines > FILE_LINES_MAX}


def test_no_function_is_too_long() -> None:
    long = []
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.name} {lines}")
    assert not long


def packages() -> Iterator[Path]:
    """Folders with Python of the product, nested ones included."""
    for folder in MAY_IMPORT:
        yield from sorted(path.parent for path in (ROOT / folder).rglob("__init__.py"))


def test_every_package_has_a_docstring() -> None:
    assert not [path for path in packages() if not ast.get_docstring(ast.parse((path / "__init__.py").read_text()))]


def test_each_list_of_folders_is_complete() -> None:
    folders = set(MAY_IMPORT)
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"} == folders
    linted = re.search(r"^PACKAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    digested = re.search(r"find pyproject.toml setup.py ([a-z_ ]*)", (ROOT / ".ci/bootstrap").read_text())
    assert linted and set(linted[1].split()) == folders
    assert digested and set(digested[1].split()) == folders


def test_the_rule_of_packages_finds_every_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """`package_folders` of setup.py names no package by hand, and none twice."""
    monkeypatch.setenv("RINGMQ_ALL_PACKAGES", "1")
    rule = runpy.run_path(str(ROOT / "setup.py"))
    found = rule["package_folders"]()
    wanted = {path.relative_to(ROOT).as_posix() for path in packages()} | {"packaging/ringmq"}
    assert set(found.values()) == wanted and len(found) == len(wanted)
    monkeypatch.delenv("RINGMQ_ALL_PACKAGES")
    installed = rule["package_folders"]()
    left_out = set(found) - set(installed)
    assert left_out and all(name.startswith("ringmq.loadtest.") for name in left_out)
    assert (found.pop("ringmq"), found.pop("pyspark_ringmq")) == ("packaging/ringmq", "spark_bridge/pyspark_ringmq")
    assert all(name == "ringmq." + folder.replace("/", ".") for name, folder in found.items())


def test_what_is_installed_of_loadtest_imports_nothing_else_of_it_at_the_top() -> None:
    """The bench looks for ceiling and replication before it imports them: a wheel has neither."""
    installed = runpy.run_path(str(ROOT / "setup.py"))["LOADTEST"]
    wrong = []
    for path in (path for part in installed for path in (ROOT / "loadtest" / part).rglob("*.py")):
        tree = top_level(ast.parse(path.read_text()))
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        parts = {found[1] for module in modules if (found := re.match(r"ringmq\.loadtest\.(\w+)", module))}
        wrong += [f"{path.relative_to(ROOT)} imports {part}" for part in parts - installed]
    assert not wrong


def test_the_table_of_folders_lists_allowed_imports() -> None:
    listed = {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        if row := re.fullmatch(r"\| `(\w+)/` \| .* \| ([^|]*) \|", line):
            listed[row[1]] = set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", row[2]))) - {"nothing"}
    assert listed == MAY_IMPORT


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.split(r"[<>=\[]", text)[0] for text in wanted} - {"ringmq"}
    rows = re.findall(r"^\| ([^|]*) \|", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
    assert not names - {name for row in rows for name in row.split(", ")}


def test_no_install_names_the_package_of_an_index() -> None:
    """Another package has the name there. Commands name a checkout, a wheel or the Debian package."""
    by_name = re.compile(r"pip3? install( -\S+)* ['\"`]?ringmq\b(?!-)")
    texts = [path for kind in ("*.py", "*.md", "*.sh", "*.toml", "*.service") for path in ROOT.rglob(kind)]
    found = [path for path in texts if not {".venv", "build"} & set(path.parts) and by_name.search(path.read_text())]
    assert not [path for path in found if path != Path(__file__)]


PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md")),
    *(ROOT / "docs").glob("*.md"),
]


def test_the_first_page_is_short_and_begins_with_a_command() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) < 100
    assert next(number for number, line in enumerate(lines, 1) if line.startswith("make run")) < 25


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, for links with #."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    lost = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            if target.startswith("http"):
                continue
            path = page.parent / target if target else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                lost.append(f"{page.name}: {target}#{anchor}")
    assert not lost


def test_every_table_of_a_page_has_a_head() -> None:
    """A blank line inside a table makes its last rows plain text."""
    for page in PAGES:
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
            assert re.match(r"\|.*\n\|-", table), f"{page.name}: {table[:80]}"


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert not [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name}" not in readme]


def test_no_unfinished_marks() -> None:
    mark = re.compile(r"\b(TODO|FIXME|HACK|NotImplementedError)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*python_files(), *(ROOT / "native/src").rglob("*.[ch]")]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if mark.search(line)
    ]
    assert not found


def test_tests_have_no_hopeful_sleeps() -> None:
    sleeping = re.compile(r"\b(time|asyncio)\.sleep\((?!0\))")
    wordy = re.compile(r"# .*\bspan\b.*\w+ \w+")
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = str(path.relative_to(ROOT / "tests"))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            is_poll = "# poll" in line and name in POLLS
            if sleeping.search(line) and not wordy.search(line) and not is_poll and path != Path(__file__):
                found.append(f"{name}:{number}")
    assert not found, "wait by tests/waiting.py; a sleep that observes or paces says `# span:` and why"


PRINTS = re.compile(
    r"\bclick\.(echo|secho|echo_via_pager)\b|(?<![\w.])print\(|\bsys\.std(out|err)\.write\b|json\.dumps\("
)


def test_commands_print_by_their_output_module_alone() -> None:
    """`cli/output.py` makes text of peers printable. `ringmq --version` loads no module."""
    lines = [
        f"{path.name}: {line.strip()}"
        for path in [*sorted((ROOT / "cli").glob("*.py")), *of_guests("cli")]
        if path.name != "output.py"
        for line in path.read_text().splitlines()
        if PRINTS.search(line) and "console.print(" not in line and "version('ringmq')" not in line
    ]
    assert not lines, "print by say, say_lines, print_rows, print_line, print_json or print_body of ringmq.cli.output"


def test_text_of_peers_is_made_printable_in_one_place() -> None:
    home = ROOT / "remoting" / "printable.py"
    marks = ("x9f", "u202e", ".isprintable(")
    found = [
        f"{path.relative_to(ROOT)}: {mark}"
        for path in python_files()
        for mark in marks
        if path != home and mark in path.read_text()
    ]
    assert found == ["ha/handshake.py: .isprintable("], "a check that refuses, no output"


def test_loggers_of_programs_have_the_filter() -> None:
    """Their handlers belong to the program, so `ringmq.client.printable_log` changes the records."""
    names = re.compile(r"getLogger\(\"?([\w.]+)\"?\)")
    used = {
        name
        for folder in ("client", "spark_bridge")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "printable_log.py"
        for name in names.findall(path.read_text())
    }
    listed = {
        name
        for folder in ("client", "spark_bridge")
        for call in re.findall(r"make_printable\((.*?)\)", (ROOT / folder / "__init__.py").read_text())
        for name in re.findall(r"\"([\w.]+)\"", call)
    }
    assert used == listed
