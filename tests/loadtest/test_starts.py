"""What each process of RingMQ may not import, and the tool that measures it."""

import os
from pathlib import Path

import pytest

from ringmq.ipc.guests import FOLDERS
from ringmq.ipc.workers import WORKERS
from ringmq.loadtest.starts import main as starts
from ringmq.loadtest.starts import rows
from ringmq.loadtest.starts.rows import ENTRIES, imported

NOWHERE = "email http numpy secrets random difflib bz2 lzma importlib.metadata multiprocessing urllib.request argparse"
"""For errors, for rare work, or for one worker of ten."""
SERVER_PARTS = "ringmq.broker ringmq.ha ringmq.ipc ringmq.namesrv ringmq.services ringmq.store ringmq.timer"
SERVERS_ONLY = f"orjson cffi _cffi_backend lark msgspec psutil h11 rich ringmq.native {SERVER_PARTS}"
NO_SQL = "ringmq.filters.compiler"
OTHER_WORKERS = "ringmq.broker.exporter ringmq.timer.worker ringmq.services.worker ringmq.services.republisher"
HOT = f"asyncio ssl subprocess socket tempfile orjson click {OTHER_WORKERS} {NO_SQL}"
NOT_HOT = f"{HOT} ringmq.broker.control ringmq.remoting.command ringmq.store.recovery ringmq.ipc.supervisor_core"
FLUSH_OR_DISPATCH = NOT_HOT.replace("socket ", "")
IMAGE = "image of the workers"
STATEMENTS = {
    **ENTRIES,
    IMAGE: (
        "from importlib import import_module; import ringmq.broker.server; "
        "from ringmq.broker.config.broker_config import BrokerConfig as Config; "
        "from ringmq.broker.worker_image import image_contents; [*map(import_module, image_contents(Config()).at_once)]"
    ),
}
UNWANTED = {
    "`ringmq --help`": f"asyncio json logging socket dataclasses ringmq.client ringmq.cli.serve {SERVERS_ONLY}",
    "SDK: `import ringmq.client`": f"asyncio ssl subprocess inspect dataclasses socket click pathlib {SERVERS_ONLY}",
    "SDK: `ringmq.client.Producer`": f"click lark msgspec h11 rich {SERVER_PARTS} {NO_SQL}",
    "SDK: `ringmq.client.blocking`": f"click lark msgspec h11 rich {SERVER_PARTS} {NO_SQL}",
    "`ringmq serve`, `ringmq broker`": (
        f"asyncio ssl hashlib tempfile ringmq.broker.control ringmq.broker.tables.consumers ringmq.client.producer "
        f"ringmq.remoting.client_headers {OTHER_WORKERS} {NO_SQL}"
    ),
    IMAGE: f"click psutil h11 rich ringmq.broker.exporter ringmq.timer.worker lark {NO_SQL}",
    "name server": f"click hashlib ringmq.broker ringmq.store ringmq.services {NO_SQL}",
    "`read`, `write`": f"{NOT_HOT} hashlib ringmq.store ringmq.broker.config",
    "`flush`": f"{FLUSH_OR_DISPATCH} hashlib",
    "`dispatch`": f"{FLUSH_OR_DISPATCH} hashlib",
    "`control`": f"asyncio ssl subprocess click hashlib tempfile ringmq.ipc.supervisor_core {OTHER_WORKERS} {NO_SQL}",
}
"""Process -> modules, beside those of NOWHERE."""
ALLOWED = {
    "SDK: `ringmq.client.Producer`": {"random"},
    "SDK: `ringmq.client.blocking`": {"random"},
    "`ringmq --help`": {
        *("bz2", "lzma"),  # of shutil, which click imports
        *("ringmq.ipc", "ringmq.services", "ringmq.timer"),  # the rows of guests, see ROWS
    },
}


ROWS = {
    "ringmq.ipc", "ringmq.ipc.guests", "ringmq.ipc.named_functions", "ringmq.services",
    *FOLDERS, *(f"{folder}.guest" for folder in FOLDERS),
}  # fmt: skip


def test_help_loads_no_more_of_servers_than_the_rows_of_guests() -> None:
    loaded = imported(STATEMENTS["`ringmq --help`"], {}).raw["modules"]
    assert {name for name in loaded if name.startswith(tuple(f"{part}." for part in SERVER_PARTS.split()))} <= ROWS


@pytest.mark.parametrize("entry", UNWANTED)
def test_a_process_does_not_import_what_it_does_not_use(entry: str) -> None:
    unwanted = {*NOWHERE.split(), *UNWANTED[entry].split()} - ALLOWED.get(entry, set())
    assert not unwanted & set(imported(STATEMENTS[entry], {}).raw["modules"])


def test_the_workers_of_the_table_have_an_entry() -> None:
    statements = " ".join(ENTRIES.values())
    assert not [row.name for row in WORKERS if row.module not in statements]


def test_a_statement_that_fails_shows_its_error() -> None:
    with pytest.raises(RuntimeError, match=r"ModuleNotFoundError: No module named 'ringmq\.nothing'"):
        imported("import ringmq.nothing", {})


def test_modules_are_counted_and_the_time_is_above_that_of_the_interpreter() -> None:
    found = imported("import ringmq", {})
    assert found.values["own"] == 1 < found.values["modules"] == len(found.raw["modules"])
    assert imported("import ringmq", {}, bare_ms=1e6).values["cpu_ms"] < 0 < found.values["cpu_ms"]


def test_each_round_measures_the_other_checkout_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broker:
        def __init__(self, store: Path, settings: object, *, environment: dict[str, str]) -> None:
            began.append(environment.get("PYTHONPATH", "this"))
            self.process = type("Process", (), {"pid": os.getpid()})()
            self.start_seconds = 0.5

        def __enter__(self) -> "Broker":
            return self

        def __exit__(self, *ignored: object) -> None:
            pass

    began: list[str] = []
    monkeypatch.setattr(rows, "RunningBroker", Broker)
    monkeypatch.setattr(starts, "ENTRIES", {"nothing": "pass"})
    assert starts.main(["--rounds", "2", "--old", str(tmp_path), "--folder", str(tmp_path / "stores")]) == 0
    assert began == [str(tmp_path), "this"] * 2
    shown = capsys.readouterr().out
    assert shown.index(f"\n{tmp_path}\n") < shown.index("\nthis checkout\n")
    assert shown.count("| nothing | ") == 2 and shown.count("| `ringmq serve` | 0.50 | ") == 2
