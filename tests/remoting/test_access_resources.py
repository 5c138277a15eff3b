"""Every handled request code has its resources, and a refusal names them."""

import re
from pathlib import Path

import pytest

from ringmq.remoting import access, access_resources
from ringmq.remoting.access_resources import BROKER, STOCK_ASKS_NOTHING, Kind, resource_text
from ringmq.remoting.codes import RequestCode as Code

PAGE = Path(__file__).resolve().parents[2] / "docs" / "access.md"


def test_every_code_of_the_broker_has_resources() -> None:
    assert set(BROKER) == set(access.BROKER)
    assert all(BROKER.values())
    assert set(BROKER) >= STOCK_ASKS_NOTHING


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        (Code.SEND_MESSAGE_V2, [("Topic", "b", "Pub")]),
        (Code.PULL_MESSAGE, [("Topic", "topic", "Sub"), ("Group", "consumerGroup", "Sub")]),
        (Code.VIEW_BROKER_STATS_DATA, [("Cluster", "", "Get")]),
        (Code.GET_BROKER_CONSUME_STATS, [("Cluster", "", "Get")]),
        (Code.SEND_REPLY_MESSAGE_V2, [("Topic", "b", "Pub")]),
        (Code.CONSUME_MESSAGE_DIRECTLY, [("Group", "consumerGroup", "Sub"), ("Topic", "topic", "Sub")]),
        (Code.GET_CONSUMER_RUNNING_INFO, [("Group", "consumerGroup", "Get")]),
        (Code.DELETE_SUBSCRIPTIONGROUP, [("Group", "groupName", "Delete")]),
        (Code.CLONE_GROUP_OFFSET, [("Group", "destGroup", "Update"), ("Topic", "topic", "Update")]),
    ],
)
def test_resources_are_those_that_stock_asks_about(code: int, asked: list[tuple[str, str, str]]) -> None:
    assert [(one.kind.value, one.field, one.actions) for one in BROKER[code]] == asked


def test_changes_ask_for_no_right_to_read() -> None:
    for code, kind in access.BROKER.items():
        actions = {action for one in BROKER[code] for action in one.actions.split("/")}
        if kind is access.Access.READ_ADMIN:
            assert actions <= {"Get"}, code
        if kind is access.Access.CHANGE_ADMIN:
            assert "Get" not in actions, code


def test_a_cluster_is_named_by_no_field() -> None:
    for code, resources in BROKER.items():
        for one in resources:
            assert bool(one.field) == (one.kind is not Kind.CLUSTER and not one.is_in_body), code


def test_names_are_cut_and_cannot_break_a_log_line() -> None:
    assert resource_text(Code.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}) == "Topic:Orders"
    assert (
        resource_text(Code.DELETE_TOPIC_IN_BROKER, {"topic": "a\nb\x1b" + "c" * 500})
        == "Topic:a\\x0ab\\x1b" + "c" * 123
    )
    progress = {"consumerGroup": "G", "topicList": ";".join(f"T{n}" for n in range(9))}
    assert resource_text(Code.GET_CONSUME_STATS, progress) == "Group:G, Topic:T0, Topic:T1 and 7 more"
    assert resource_text(Code.UPDATE_BROKER_CONFIG, {"topic": "T"}) == ""
    assert resource_text(Code.UPDATE_AND_CREATE_TOPIC_LIST, {"": "T"}) == ""
    assert resource_text(99_999, {"topic": "T"}) == ""


def test_the_page_shows_the_tables() -> None:
    page = PAGE.read_text()
    assert "\n".join(access_resources.markdown_rows()) in page
    shown = re.search(r"may send them:([\d,\s]+)\.", page)
    assert shown is not None
    assert sorted(map(int, shown[1].split(","))) == sorted(map(int, STOCK_ASKS_NOTHING))
