"""A handler works with the parts that its class names, without a broker."""

from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.handlers.admin_config import ConfigRequests
from ringmq.broker.handlers.queries import QueryRequests
from ringmq.broker.requests.request import Outbox, Request
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion
from tests.broker.fakes import START_MS, FakePlane, FakeStore, peer


def request(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Request:
    return Request(RemotingCommand.request(code, ext, body), peer(1), START_MS)


def test_queries_need_the_configuration_and_the_store() -> None:
    live = LiveConfig(BrokerConfig(), FakePlane().watermarks)
    queries = QueryRequests(live=live, store=FakeStore({100: b"stored"}))
    found: Any = queries.view_message(request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "100"}))
    assert (found.code, found.body) == (0, b"stored")
    lost: Any = queries.view_message(request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "101"}))
    assert lost.code == ResponseCode.SYSTEM_ERROR


def test_a_changed_configuration_is_handed_to_its_owner() -> None:
    plane, taken = FakePlane(), list[BrokerConfig]()
    live = LiveConfig(BrokerConfig(), plane.watermarks)
    topics = TopicTable(PlaneTables(plane), lambda topic: None, ClientNames(plane.header))
    outbox = Outbox()
    config = ConfigRequests(
        live=live, topics=topics, config_version=DataVersion(0, 0, START_MS), outbox=outbox, apply_config=taken.append
    )
    answer: Any = config.update_config(request(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4"))
    assert answer.code == 0
    assert taken == [changed(BrokerConfig(), {"brokerPermission": "4"})]
    assert outbox.register, "routes show the permission"
    assert live.config == BrokerConfig(), "its owner replaces it"
