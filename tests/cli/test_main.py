"""The command table: quick help, lazy parts, the same options everywhere."""

import ast
import json
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ringmq.cli.main import COMMANDS, LazyGroup, commands, main
from ringmq.cli.output import print_rows
from ringmq.ipc.guests import FOLDERS

HELP_CPU_S_MAX = 0.2
"""CPU time, which other processes of the machine do not stretch; alone, the wall time is the same."""


NAMED = "ringmq.ipc.named_functions"


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_help_takes_less_than_a_fifth_of_a_second() -> None:
    best = 1e9
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert "Commands:" in run_python("-m", "ringmq.cli.main", "--help").stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert best < HELP_CPU_S_MAX


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from ringmq.cli.main import main; main(['--help'], standalone_mode=False);"
        "print(sorted(n for n in sys.modules if n.startswith('ringmq.') or n == 'asyncio'))"
    )
    loaded = set(ast.literal_eval(run_python("-c", code).stdout.splitlines()[-1]))
    rows = {"ringmq.services", *FOLDERS, *(f"{folder}.guest" for folder in FOLDERS)}
    assert loaded - rows == {"ringmq.cli", "ringmq.cli.main", "ringmq.ipc", "ringmq.ipc.guests", NAMED}


def test_help_lists_every_command() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for name, entry in commands().items():
        assert f"  {name} " in text
        assert entry.help in text


def test_commands_of_guests_stand_behind_those_that_they_name() -> None:
    names = list(commands())
    at = names.index("group")
    assert names[at + 1 : at + 5] == ["transaction", "timer", "pop", "produce"]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_can_be_loaded_and_says_what_it_does(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "usage:" in result.output.lower()


def groups_of(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return []
    context = click.Context(command)
    found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [path, *(group for name, inner in found if inner for group in groups_of(inner, (*path, name)))]


@pytest.mark.parametrize("path", groups_of(main), ids="-".join)
def test_the_help_of_a_group_has_whole_sentences(path: tuple[str, ...]) -> None:
    assert "..." not in CliRunner().invoke(main, [*path, "--help"]).output.partition("Commands:")[2]


def client_commands() -> list[tuple[str, click.Command]]:
    found = []
    group = LazyGroup()
    for name in ("topic", "group", "transaction", "timer", "produce", "consume"):
        command = group.get_command(click.Context(main), name)
        assert command is not None
        found += leaves(name, command)
    return found


def leaves(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    found = [leaf for word, each in command.commands.items() for leaf in leaves(f"{name} {word}", each)]
    return [leaf for leaf in found if leaf[0] != "timer top"]  # it reads metrics


@pytest.mark.parametrize(("name", "command"), client_commands())
def test_every_client_command_has_the_options_of_all(name: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"-n", "--namesrv", "-o", "--output", "--access-key", "--tls", "--namespace"} <= options
    assert command.help


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["prodcue"])
    assert result.exit_code == 2
    assert "prodcue" in result.output


def test_a_missing_part_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "bench", COMMANDS["bench"]._replace(module="ringmq.cli.not_there"))
    result = CliRunner().invoke(main, ["bench"])
    assert result.exit_code == 1
    assert "pip install" in result.output


def test_a_part_that_is_missed_late_is_one_line_too() -> None:
    script = "import sys; sys.modules['rich'] = None; from ringmq.cli.main import main; main(['top', '--once'])"
    done = run_python("-c", script)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: top needs rich") and "pip install" in done.stderr


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).output.startswith("ringmq 0.")


def test_tables_are_aligned_and_json_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": "x", "b": None, "c": [1, 2]}, {"a": "long", "b": True, "c": []}]
    print_rows("table", rows, ["a", "b", "c"])
    assert capsys.readouterr().out == "a     b    c\nx     -    1,2\nlong  yes  -\n"
    print_rows("json", rows, ["a"])
    assert '"b": true' in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "route", "T"],
        ["group", "list"],
        ["group", "progress", "g"],
        ["produce", "T", "-m", "x"],
    ],
)
def test_no_server_is_one_line_and_status_1(arguments: list[str], unused_address: str) -> None:
    result = CliRunner().invoke(main, [*arguments, "-n", unused_address])
    assert result.exit_code == 1
    assert unused_address in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["topic", "create", "bad name"], "illegal characters"),
        (["topic", "create", "t" * 128], "127"),
        (["topic", "create", "T", "-q", "0"], "--queues"),
        (["topic", "create", "T", "--perm", "8"], "--perm"),
        (["topic", "create", "T", "--attribute", "x"], "KEY=VALUE"),
        (["group", "create", "g" * 121], "120"),
        (["produce", "T", "-m", "x", "-p", "y"], "NAME=VALUE"),
        (["produce", "T", "-m", "x", "-p", "=y"], "NAME=VALUE"),
        (["produce", "T", "-m", "x", "-k", "two words"], "blank"),
        (["produce", "T", "-m", ""], "empty"),
        (["consume", "T", "--from", "yesterday"], "--from"),
        (["consume", "T", "-t", "||"], "names no tag"),
        (["topic", "list", "-n", "nowhere"], "nowhere"),
        (["topic", "list", "-o", "yaml"], "yaml"),
    ],
)
def test_bad_input_is_named(arguments: list[str], word: str, unused_address: str) -> None:
    where = [] if "-n" in arguments else ["-n", unused_address]
    result = CliRunner().invoke(main, [*arguments, *where])
    assert result.exit_code in (1, 2)
    assert word in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["inspect", "verify", "unserved"])
def test_a_folder_that_is_no_store_is_told(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["store", command, str(tmp_path)])
    assert result.exit_code == 1
    assert f"{tmp_path} is not a store: it lacks {tmp_path}/commitlog" in result.output


def test_store_settings_are_read_as_the_broker_reads_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / f"{0:020d}").write_bytes(bytes(65_536))
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog:{tmp_path}/\\\n  log\nmappedFileSizeCommitLog 65536\n! a remark\n")
    result = CliRunner().invoke(main, ["store", "inspect", str(tmp_path), "-c", str(config), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["log_files"][0]["path"] == str(log / f"{0:020d}")
    result = CliRunner().invoke(main, ["store", "inspect", str(tmp_path), "--set", "maxIndexNum"])
    assert result.exit_code == 2
    assert "'maxIndexNum' is not NAME=VALUE" in result.output
