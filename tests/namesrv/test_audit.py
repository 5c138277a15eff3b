"""One audit line for each change that a name server makes on request."""

import pytest

from ringmq.ipc.audit import AuditWriter
from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.core import Registration
from ringmq.namesrv.handlers import NamesrvHandlers
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable

HOST = "10.0.0.7"
CHANGES: dict[str, tuple[int, dict[str, str], bytes, tuple[object, ...]]] = {
    "wiped permissions": (
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}, b"",
        ("permission", "b", "WIPE_WRITE_PERM_OF_BROKER", {"writableTopics": 2}, {"writableTopics": 0}),
    ),
    "added permissions": (
        RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "wiped"}, b"",
        ("permission", "wiped", "ADD_WRITE_PERM_OF_BROKER", {"writableTopics": 0}, {"writableTopics": 2}),
    ),
    "a deleted topic": (
        RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}, b"",
        ("topic", "T", "DELETE_TOPIC_IN_NAMESRV", ["b"], None),
    ),
    "a key": (
        RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "token", "value": "secret"}, b"",
        ("configuration", "n", "PUT_KV_CONFIG", None, {"token": "(hidden)"}),
    ),
    "a deleted key": (
        RequestCode.DELETE_KV_CONFIG, {"namespace": "n", "key": "old"}, b"",
        ("configuration", "n", "DELETE_KV_CONFIG", {"old": "1"}, None),
    ),
    "a configuration": (
        RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"logLevel=DEBUG\nsupportActingMaster=false",
        ("configuration", "namesrv", "UPDATE_NAMESRV_CONFIG", {"logLevel": "INFO"}, {"logLevel": "DEBUG"}),
    ),
}  # fmt: skip


@pytest.fixture
def handlers() -> NamesrvHandlers:
    """A name server with two brokers of two topics, and one key."""
    made = NamesrvHandlers(NamesrvConfig())
    for name, topics in (("b", "TU"), ("wiped", "VW")):
        table = TopicConfigTable({topic: TopicConfig(topic, 4, 4) for topic in topics}, DataVersion(1))
        made.registry.register(Registration("c", name, f"10.0.0.1:{ord(name[0])}", 0, "10.0.0.1:1", table), 0)
    made.registry.set_write_perm("wiped", False)
    made.kv.put("n", "old", "1")
    return made


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_has_one_line(handlers: NamesrvHandlers, name: str, caplog: pytest.LogCaptureFixture) -> None:
    code, fields, body, expected = CHANGES[name]
    caplog.set_level("INFO", "ringmq")
    answer = handlers.handle(RemotingCommand(code, 1, ext_fields=fields, body=body), 5, 0, HOST)
    assert answer is not None and answer.code == 0
    AuditWriter(handlers.audit).turn(0)
    (record,) = caplog.records
    written = dict(record.__dict__["fields"])
    assert written.pop("peer") == HOST
    assert tuple(written.values()) == expected


def test_refused_changes_have_no_line(handlers: NamesrvHandlers) -> None:
    handlers.config.admin_addresses = "192.0.2.1"
    for code, fields, body, _ in CHANGES.values():
        answer = handlers.handle(RemotingCommand(code, 1, ext_fields=fields, body=body), 5, 0, HOST)
        assert answer is not None and answer.code != 0
    assert handlers.audit.changes == []
