"""The broker's access policy: lists of networks, loopback, proxies; the text and count of a refusal."""

from dataclasses import replace

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.requests import access
from ringmq.broker.requests.request import Connection, Release
from ringmq.remoting.access import BROKER, DECISIONS, Access
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.fakes import make_harness, peer

FAR = peer(1)._replace(host="10.0.0.7")
FAR_V6 = peer(1)._replace(host="::ffff:10.0.0.7")
NEAR = peer(2)


def config(**values: str) -> BrokerConfig:
    return changed(BrokerConfig(), values)


@pytest.mark.parametrize("connection", [FAR, FAR_V6, NEAR])
def test_empty_lists_allow_changes_and_replication_from_everywhere(connection: Connection) -> None:
    assert access.may_change(config(), connection)
    assert access.may_replicate(config(), connection)


def test_an_empty_list_leaves_decisions_to_loopback() -> None:
    assert access.may_decide(config(), NEAR)
    assert access.may_decide(config(), peer(3)._replace(host="::1"))
    assert not access.may_decide(config(), FAR)


def test_a_list_names_who_may_change_and_decide() -> None:
    named = config(adminAddresses="10.0.0.0/8", haAllowedNetworks="10.1.0.0/16")
    assert access.may_change(named, FAR)
    assert access.may_change(named, FAR_V6)
    assert access.may_decide(named, FAR)
    assert access.may_decide(named, NEAR)  # loopback
    assert not access.may_change(named, NEAR)
    assert not access.may_replicate(named, FAR)
    assert access.may_replicate(named, peer(4)._replace(host="10.1.2.3"))


def test_loopback_is_no_named_replica_without_a_list() -> None:
    named = changed(BrokerConfig(), {"haAllowedNetworks": "127.0.0.0/8"})
    assert access.is_named_replica(named, NEAR)
    assert not access.is_named_replica(BrokerConfig(), NEAR), "an empty list names none"


@pytest.mark.parametrize("code", sorted(BROKER))
def test_each_code_is_bounded_by_the_list_of_its_class(code: int) -> None:
    lists = config(adminAddresses="192.0.2.1", haAllowedNetworks="192.0.2.2")
    text = access.refusal(lists, code, FAR)
    properties = {Access.CHANGE_ADMIN: "adminAddresses", Access.REPLICATION: "haAllowedNetworks"}
    wanted = properties.get(BROKER[code])
    assert (text is None) == (wanted is None)
    if text is not None:
        assert f"code {int(code)} " in text
        assert FAR.host in text
        assert str(wanted) in text


def test_a_refused_request_is_answered_and_counted_and_changes_nothing() -> None:
    harness = make_harness({"adminAddresses": "192.0.2.1"})
    topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    answer = harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic, connection=FAR)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == (
        "code 17 (UPDATE_AND_CREATE_TOPIC) from host 10.0.0.7 is refused: adminAddresses does not name this host "
        "(Topic:T)"
    )
    assert "T" not in harness.broker.topics
    assert harness.broker.refusals.take() == {RequestCode.UPDATE_AND_CREATE_TOPIC: (answer.remark, 1)}
    assert harness.broker.refusals.take() == {}
    assert dict(harness.broker.refusals.counts()) == {"change admin": 1, "replication": 0}


def test_a_refused_oneway_request_is_dropped_with_the_count() -> None:
    harness = make_harness({"adminAddresses": "192.0.2.1"})
    verdict = harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4", connection=FAR, oneway=True)
    assert isinstance(verdict, Release)
    assert harness.broker.config.broker_permission == 6
    assert dict(harness.broker.refusals.counts())["change admin"] == 1


def test_a_oneway_question_is_dropped_before_it_costs_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_harness()
    assert harness.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
    questions = [code for code, kind in BROKER.items() if kind is Access.READ_ADMIN]
    for code in questions:
        monkeypatch.setitem(harness.handlers.codes, code, lambda request: pytest.fail("it ran"))
        assert isinstance(harness.ask(code, {"topic": "TBW102", "group": "G"}, oneway=True), Release), code


@pytest.mark.parametrize("code", sorted(DECISIONS))
def test_a_decision_from_another_host_names_what_would_allow_it(code: int) -> None:
    harness = make_harness()
    fields = {"brokerId": "1", "choice": "promote"}
    answer = harness.ask(code, fields, connection=FAR)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark.endswith("only loopback and networks of adminAddresses may send it")


def test_data_that_makes_topics_and_groups_is_no_change_admin() -> None:
    harness = make_harness({"adminAddresses": "192.0.2.1"})
    assert harness.join("G", {"T": "*"}, connection=FAR).code == ResponseCode.SUCCESS
    assert "G" in harness.broker.groups


def test_refusals_between_two_turns_are_counted_by_code() -> None:
    refusals = access.Refusals()
    for number in range(1000):
        refusals.add(RequestCode.UPDATE_BROKER_CONFIG, f"text {number}")
    assert refusals.take() == {RequestCode.UPDATE_BROKER_CONFIG: ("text 0", 1000)}
    assert dict(refusals.counts())["change admin"] == 1000


def test_the_policy_follows_a_changed_configuration() -> None:
    harness = make_harness()
    assert harness.ask(RequestCode.CLEAN_UNUSED_TOPIC, connection=FAR).code == ResponseCode.SUCCESS
    harness.broker.apply_config(replace(harness.broker.config, admin_addresses="192.0.2.1"))
    assert harness.ask(RequestCode.CLEAN_UNUSED_TOPIC, connection=FAR).code == ResponseCode.NO_PERMISSION
