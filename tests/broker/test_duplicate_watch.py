"""Two brokers of one name: the look at a name server finds the other one, and log lines name it."""

import pytest

from ringmq.broker.duplicate_watch import LOOK_EVERY_MS, DuplicateWatch
from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.handlers import NamesrvHandlers
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.register_body import encode_register_body
from ringmq.remoting.route import BrokerData, TopicRouteData

OWN, OTHER = "10.0.0.1:10911", "10.0.0.2:10911"
NOW = 1_800_000_000_000


def answered(addresses: dict[int, str], name: str = "b") -> RemotingCommand:
    route = TopicRouteData(broker_datas=[BrokerData("c", name, addresses)])
    return RemotingCommand(0, body=route.encode(standard_json=True))


def test_a_look_precedes_a_registration_but_not_each_of_a_quick_row() -> None:
    watch = DuplicateWatch("b", OWN)
    look = watch.due_request("a:1", NOW)
    assert look is not None
    assert look.ext_fields == {"topic": "b", "acceptStandardJsonOnly": "true"}
    assert watch.due_request("a:1", NOW + LOOK_EVERY_MS - 1) is None
    assert watch.due_request("b:2", NOW) is not None, "each name server has its own"
    assert watch.due_request("a:1", NOW + LOOK_EVERY_MS) is not None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        RemotingCommand(17),
        RemotingCommand(0, body=b"junk"),
        answered({}),
        answered({0: OWN}),
        answered({0: OWN, 1: OTHER}),
        answered({0: OTHER}, "another"),
    ],
)
def test_nobody_else_is_no_news(answer: RemotingCommand | None) -> None:
    watch = DuplicateWatch("b", OWN)
    assert watch.on_answer("a:1", answer, 0, NOW) is None
    assert watch.others == {}


def test_the_id_is_that_of_the_side() -> None:
    watch = DuplicateWatch("b", OWN)
    assert watch.on_answer("a:1", answered({0: OTHER, 1: OWN}), 1, NOW) is None
    assert watch.on_answer("a:1", answered({0: OTHER, 1: OWN}), 0, NOW) is not None


def test_another_broker_is_named_once_and_shown_until_it_is_gone() -> None:
    watch = DuplicateWatch("b", OWN)
    line = watch.on_answer("a:1", answered({0: OTHER}), 0, NOW)
    assert line is not None
    assert f"name server a:1: another broker is registered as b:0 at {OTHER}, this broker is at {OWN}" in line
    assert watch.on_answer("a:1", answered({0: OTHER}), 0, NOW + 30_000) is None
    assert watch.on_answer("a:1", None, 0, NOW + 60_000) is None
    assert watch.others == {"a:1": OTHER}, "no answer is no news"
    assert watch.on_answer("a:1", answered({0: OWN}), 0, NOW + 90_000) is None
    assert watch.others == {}


def test_of_two_masters_that_register_in_turns_each_finds_the_other() -> None:
    handlers = NamesrvHandlers(NamesrvConfig())
    watches = {address: DuplicateWatch("b", address) for address in (OWN, OTHER)}
    found = []
    for turn in range(3):
        for number, (address, watch) in enumerate(watches.items()):
            now_ms = NOW + 30_000 * turn + 10_000 * number
            look = watch.due_request("a:1", now_ms)
            assert look is not None
            found.append(watch.on_answer("a:1", handlers.handle(look, number, now_ms), 0, now_ms) is not None)
            body = encode_register_body(
                TopicConfigTable({name: TopicConfig(name) for name in ("b", "T")}, DataVersion(1, 0, NOW))
            )
            ext = {
                "brokerName": "b", "brokerAddr": address, "clusterName": "c", "haServerAddr": "x:1", "brokerId": "0",
            }  # fmt: skip
            answer = handlers.handle(RemotingCommand(103, ext_fields=ext, body=body), number, now_ms)
            assert answer is not None and answer.code == 0
    assert found == [False, True, True, False, False, False], "each says so once; later looks repeat it"
    assert [watch.others for watch in watches.values()] == [{"a:1": OTHER}, {"a:1": OWN}]
