"""`ringmq config`: every problem of a file at once, values with their origin, the reference page."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.broker.config import notes as config_notes
from ringmq.broker.config import table as config_table
from ringmq.broker.config.broker_config import property_table
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.cli.main import main
from ringmq.cli.output import Row


def run(*arguments: object, environ: dict[str, str] | None = None) -> Result:
    """Without the engine that the tests run on (RINGMQ_ENGINE), which would be a setting."""
    env = {"RINGMQ_ENGINE": None, **(environ or {})}
    return CliRunner().invoke(main, [str(word) for word in arguments], env=env)


def problems_of(tmp_path: Path, text: str, *options: str) -> tuple[list[Row], int]:
    file = tmp_path / "some.conf"
    file.write_text(text)
    done = run("config", "check", file, "-o", "json", *options)
    report = json.loads(done.stdout)
    assert report["ok"] == (done.exit_code == 0)
    return report["problems"], done.exit_code


def test_every_problem_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    text = "listenPrt=1\n# note\nlistenPort=99999\nbrokerName=a\nsendMessageThreadPoolNums=3\nbrokerName=b\nqqqzzz=1\n"
    problems, status = problems_of(tmp_path, text + "diskSpaceWarningLevelRatio=95\n")
    assert [(row["line"], row["level"], row["name"]) for row in problems] == [
        (1, "fail", "listenPrt"),
        (3, "fail", "listenPort"),
        (4, "warn", "brokerName"),
        (5, "warn", "sendMessageThreadPoolNums"),
        (7, "fail", "qqqzzz"),
        (8, "warn", "diskSpaceWarningLevelRatio"),
    ]
    assert problems[0]["nearest"] == "listenPort"
    assert problems[1]["accepted"] == "a whole number 0..65535"
    assert "line 6" in problems[2]["message"]
    assert problems[4]["nearest"] is None
    assert problems[5]["message"] == "95 counts as 90"
    assert status == 1


def test_the_overridden_one_of_a_repeated_name_is_judged_too(tmp_path: Path) -> None:
    problems, status = problems_of(tmp_path, "listenPort=x\nlistenPort=1000\n")
    assert [(row["line"], row["level"]) for row in problems] == [(1, "warn"), (1, "fail")]
    assert status == 1


def test_values_that_contradict_are_all_told_once_each_is_possible(tmp_path: Path) -> None:
    text = "brokerId=2\nlistenPort=2\nminInSyncReplicas=2\nringmqReceiveBufferCount=100\n"
    problems, _ = problems_of(tmp_path, text)
    assert [(row["line"], row["name"]) for row in problems] == [
        (1, "brokerId"),
        (2, "listenPort"),
        (3, "minInSyncReplicas"),
        (4, "ringmqReceiveBufferCount"),
    ]
    problems, _ = problems_of(tmp_path, text + "traceOn=perhaps\n")
    assert [row["name"] for row in problems] == ["traceOn"], "a possible traceOn might change how the rest fits"


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"a=\\u00zz\n", 1, "hexadecimal"),
        (b"brokerName=a\nregionId=\xff\n", 2, "not UTF-8"),
        (b"#" * 1_048_577, 0, "limit"),
    ],
)
def test_a_file_that_is_no_properties_text_is_one_problem(tmp_path: Path, data: bytes, line: int, words: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(data)
    done = run("config", "check", file, "-o", "json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["line"] == line
    assert words in problem["message"]
    assert done.exit_code == 1


def test_a_name_server_file_has_rules_of_its_own(tmp_path: Path) -> None:
    problems, status = problems_of(
        tmp_path, "listenPort=9\nscanNotActiveBroker=1\norderMessageEnable=y\n", "--server=namesrv"
    )
    assert [(row["line"], row["nearest"]) for row in problems] == [(2, "scanNotActiveBrokerInterval"), (3, None)]
    assert problems[1]["accepted"] == "true or false"
    assert status == 1


def test_a_good_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listenPort = 10911\n")
    done = run("config", "check", file)
    assert done.output == f"{file}: ok\n"
    assert done.exit_code == 0


def test_what_check_finds_good_a_broker_takes(tmp_path: Path) -> None:
    """The two ways into the table agree, for every property at its default."""
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{name}={entry.text(entry.default)}\n" for name, (_, entry) in property_table().items()))
    assert problems_of(tmp_path, file.read_text()) == ([], 0)
    assert run("config", "show", "-c", file, "--changed", "-o", "json").stdout == "[]\n"


def test_values_in_use_come_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nregionId=file\nlistenPort=1000\n")
    done = run(
        "config", "show", "-c", file, "--set", "regionId=option", "--changed", "-o", "json",
        environ={"RINGMQ_LISTEN_PORT": "2000"},
    )  # fmt: skip
    shown = {row["name"]: (row["value"], row["place"]) for row in json.loads(done.stdout)}
    assert shown == {
        "brokerName": ("from-file", f"{file} line 1"),
        "listenPort": ("2000", "environment RINGMQ_LISTEN_PORT"),
        "regionId": ("option", "--set regionId=option"),
    }
    refused = run("config", "show", "--set", "listenPort=x")
    assert refused.exit_code == 1
    assert "0..65535" in refused.output


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "properties.md"
    assert page.read_text() == run("config", "reference").stdout, "run ringmq config reference > docs/properties.md"


def test_every_property_of_ours_says_what_it_means() -> None:
    strangers = {name for name in property_table() if name not in STOCK_PROPERTY_NAMES}
    assert set(config_notes.MEANINGS) == strangers
    assert set(config_notes.DIFFERENCES) <= STOCK_PROPERTY_NAMES & set(property_table())
    assert {row.kind for row in config_table.rows()} == {"number", "switch", "choice", "text"}
