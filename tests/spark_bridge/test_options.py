"""Options: what is missing, unknown or impossible is refused by name."""

from pathlib import Path

import pytest

from ringmq.spark_bridge.options import OptionError, parse_options


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "commitlog").mkdir()
    return tmp_path


def test_names_are_taken_in_any_case(store: Path) -> None:
    options = parse_options({"STORE": str(store), "IncludeSystemTopics": "TRUE", "subscribe": " a , b "})
    assert (options.store, options.include_system_topics, options.topics) == (store.resolve(), True, ("a", "b"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stroe": "x"}, "stroe"),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"includeSystemTopics": "yes"}, "includeSystemTopics"),
        ({"columns": "offset,body"}, "'body'"),
        ({"columns": "offset,offset"}, "twice"),
        ({"endingLogOffset": "end"}, "endingLogOffset"),
    ],
)
def test_refusals_name_the_option(store: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options({"store": str(store)} | options)


def test_a_missing_store_and_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="store"):
        parse_options({})
    with pytest.raises(OptionError, match="no commitlog folder"):
        parse_options({"store": str(tmp_path)})
