"""Replication's requests to control: handshake, reading of the log, status, requests of stock slaves."""

import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.replication.view import HOLD_LONGER_SLAVE, HOLD_NONE, READY, TRANSFER, mono_ms
from ringmq.broker.requests.request import Request, Slices
from ringmq.ha import handshake
from ringmq.ha.control_messages import LinkNews, Master
from ringmq.remoting import ha_bodies
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.ha_bodies import HaReadLogResponseHeader, HaStatus
from ringmq.remoting.json_body import read_object
from ringmq.store.tenure_file import EpochStart, TenureRecord
from ringmq.timer.timer_checkpoint import TimerCheckpoint
from tests.broker.fakes import Harness, make_harness, peer
from tests.broker.ha_kit import LOG, SETTINGS, claim, master, shake, status

__all__ = ["master"]

EPOCH = 65537


# ---- handshake ----


def test_an_equal_beginning_is_accepted_and_ha_hears_who_comes(master: Harness) -> None:
    answer = shake(master, claim(LOG[:8192]))
    assert (answer.verdict, answer.offset, answer.room) == (handshake.ACCEPT, 8192, "east")
    assert (answer.start_id, answer.max_offset, answer.confirm_offset) == ("abc", len(LOG), 9000)
    (order,) = map(json.loads, master.plane.ha_commands)
    assert order == {
        "order": "identity", "host": "10.0.0.9", "port": 5555, "broker_id": 1, "room": "west", "level": "cached",
        "start_id": "1f",
    }  # fmt: skip


def test_asking_for_the_confirm_offset_changes_nothing(master: Harness) -> None:
    answer = shake(master, claim(b"", operation="confirm"))
    assert answer.confirm_offset == 9000
    assert master.plane.ha_commands == []


def test_a_slave_refuses_to_be_a_master() -> None:
    slave = make_harness({**SETTINGS, "brokerRole": "SLAVE", "brokerId": "2"})
    answer = shake(slave, claim())
    assert answer.verdict == handshake.REFUSE
    assert "is a slave itself" in answer.reason


def test_a_stranger_gets_no_place(master: Harness) -> None:
    assert shake(master, claim(cluster="Other")).verdict == handshake.REFUSE
    assert master.plane.ha_commands == []
    assert master.plane.watermarks.write_hold == HOLD_NONE


def test_a_slave_that_is_to_send_more_windows_is_not_judged_yet(master: Harness) -> None:
    shake(master, claim(LOG + b"more"))
    blind = claim(LOG + b"more", tail=((0, len(LOG) + 4, zlib.crc32(LOG + b"more")),))
    assert shake(master, blind).verdict == handshake.COMPARE
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE, "as before"


@pytest.mark.parametrize(
    ("last_epoch", "verdict"), [(0, handshake.CUT), (EPOCH, handshake.HOLD), (handshake.UNKNOWN_EPOCH, handshake.HOLD)]
)
def test_a_promoted_master_holds_no_sends_for_what_its_promotion_has_left(
    master: Harness, last_epoch: int, verdict: str
) -> None:
    master.broker.role.core.record = TenureRecord(True, EPOCH, history=(EpochStart(EPOCH, 9000),))
    answer = shake(master, claim(LOG + b"more", last_epoch=last_epoch))
    assert (answer.verdict, answer.offset) == (verdict, len(LOG))
    assert (master.plane.watermarks.write_hold == HOLD_NONE) is (verdict == handshake.CUT)


def test_junk_is_an_error_of_the_request(master: Harness) -> None:
    assert master.ask(RequestCode.HA_HANDSHAKE, body=b"{").code == ResponseCode.INVALID_PARAMETER


def test_orders_without_room_are_to_be_asked_for_again(master: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master.plane, "ha_command_put", lambda order: False)
    answer = master.ask(RequestCode.HA_HANDSHAKE, body=handshake.body(claim()))
    assert answer.code == ResponseCode.SYSTEM_BUSY


# ---- reading the log ----


def test_the_log_is_read_in_bounded_pieces(master: Harness) -> None:
    answer = master.ask(RequestCode.HA_READ_LOG, {"offset": "10000", "maxBytes": "4096"})
    header = HaReadLogResponseHeader.decode(answer.ext_fields)
    assert (header.offset, header.max_offset, answer.body) == (10_000, len(LOG), LOG[10_000:])
    assert master.ask(RequestCode.HA_READ_LOG, {"offset": "0", "maxBytes": "16"}).body == LOG[:16]
    master.plane.watermarks.append_offset = 3 << 20
    master.store.log = bytes(3 << 20)
    answer = master.ask(RequestCode.HA_READ_LOG, {"offset": "0", "maxBytes": str(1 << 30)})
    assert len(answer.body) == ha_bodies.READ_LOG_BYTES_MAX


def test_a_step_reads_little_of_the_log(master: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may come from the disk: 1 MiB in one go would hold control up for 256 of them."""
    read: list[int] = []
    monkeypatch.setattr(
        master.store, "log_bytes", lambda offset, length: read.append(length) or bytes([offset >> 16]) * length
    )
    master.plane.watermarks.append_offset = 1 << 20
    command = RemotingCommand.request(RequestCode.HA_READ_LOG, {"offset": "100", "maxBytes": str(1 << 20)})
    begun = master.handlers.codes[RequestCode.HA_READ_LOG](Request(command, peer(1), 0))
    assert isinstance(begun, Slices)
    assert (begun.is_large, begun.is_reading, read) == (True, True, [])
    for number, _ in enumerate(begun.steps, 1):
        assert len(read) == number
    assert max(read) <= 64 << 10
    assert sum(read) == (1 << 20) - 100


def test_a_log_that_is_deleted_while_it_is_read_ends_the_answer(
    master: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.plane.watermarks.append_offset = 1 << 20
    monkeypatch.setattr(master.store, "log_bytes", lambda offset, length: bytes(length if offset < 1 << 17 else 0))
    answer = master.ask(RequestCode.HA_READ_LOG, {"offset": "0", "maxBytes": str(1 << 20)})
    assert (answer.code, len(answer.body)) == (0, 1 << 17)


@pytest.mark.parametrize("offset", [-1, len(LOG), 1 << 40])
@pytest.mark.parametrize("count", [-5, 0, 100])
def test_nothing_outside_the_log_is_read(master: Harness, offset: int, count: int) -> None:
    answer = master.ask(RequestCode.HA_READ_LOG, {"offset": str(offset), "maxBytes": str(count)})
    assert answer.code == ResponseCode.INVALID_PARAMETER


# ---- status ----


def slave_entry(**fields: Any) -> SimpleNamespace:
    now = mono_ms()
    values = {
        "state": TRANSFER, "level": 4, "flags": 3, "broker_id": 1, "host": b"\x0a\x00\x00\x07" + bytes(12),
        "host_bytes": 4, "port": 40_000, "room": b"west" + bytes(28), "start_offset": 0, "sent_offset": len(LOG),
        "received_offset": len(LOG) - 10, "reported_offset": len(LOG) - 240, "bytes_per_second": 77,
        "connected_mono_ms": now - 9000, "last_read_mono_ms": now - 20, "caught_up_mono_ms": now - 1500,
    }  # fmt: skip
    return SimpleNamespace(**values | fields)


def test_a_masters_status(master: Harness) -> None:
    free = slave_entry(state=0)
    stock = slave_entry(broker_id=-1, reported_offset=len(LOG), flags=0, room=bytes(32), state=READY)
    master.plane.header.replication.peers = [free, slave_entry(), stock]
    master.plane.watermarks.in_sync_replicas = 2
    found = status(master)
    assert (found.role, found.wanted_replicas, found.in_sync_replicas, found.is_degraded) == ("master", 2, 2, False)
    ours, other = found.slaves
    assert (ours.address, ours.broker_id, ours.room, ours.state, ours.level) == (
        "10.0.0.7:40000", 1, "west", "transfer", "cached",
    )  # fmt: skip
    assert (ours.window_bytes, ours.lag_bytes, ours.bytes_per_second, ours.in_sync, ours.counts) == (
        240, 240, 77, True, True,
    )  # fmt: skip
    assert 1500 <= ours.lag_ms < 5000
    assert (other.broker_id, other.room, other.state, other.lag_bytes, other.lag_ms, other.in_sync) == (
        -1, "", "ready", 0, 0, False,
    )  # fmt: skip


def test_fewer_replicas_than_wanted_is_degraded(master: Harness) -> None:
    master.plane.watermarks.in_sync_replicas = 1
    master.plane.watermarks.replication_state = 11
    found = status(master)
    assert found.is_degraded
    assert found.replication_state == "lost"
    assert not status(make_harness()).is_degraded, "who waits for nobody lacks nobody"


def test_a_slaves_status_and_stocks_view_of_it() -> None:
    slave = make_harness({**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"})
    slave.plane.watermarks.append_offset = 500
    link = slave.plane.header.replication.link
    link.state, link.master_offset, link.bytes_per_second, link.attempts = TRANSFER, 700, 33, 2
    link.last_read_mono_ms = mono_ms() - 100
    slave.broker.replication.master = Master("10.0.0.1:10912", "10.0.0.1:10911")
    slave.broker.replication.take_news(LinkNews("10.0.0.1:10912", "closed", why="no byte for 20 s"))
    found = status(slave)
    assert found.role == "slave"
    assert found.master is not None
    assert (found.master.lag_bytes, found.master.state, found.master.note) == (200, "transfer", "no byte for 20 s")
    bean = read_object(slave.ask(RequestCode.GET_BROKER_HA_STATUS).body, "x")
    client = bean["haClientRuntimeInfo"]
    assert (bean["master"], client["masterAddr"], client["maxOffset"]) == (False, "10.0.0.1:10912", 500)
    assert abs(client["lastReadTimestamp"] - slave.now_ms) < 60_000
    assert client["lastWriteTimestamp"] == 0


def test_stocks_view_of_a_master(master: Harness) -> None:
    master.plane.header.replication.peers = [slave_entry(), slave_entry(flags=0, broker_id=-1)]
    bean = read_object(master.ask(RequestCode.GET_BROKER_HA_STATUS).body, "x")
    assert (bean["master"], bean["masterCommitLogMaxOffset"], bean["inSyncSlaveNums"]) == (True, len(LOG), 1)
    assert bean["haConnectionInfo"][0] == {
        "addr": "10.0.0.7:40000", "diff": 240, "inSync": True, "slaveAckOffset": len(LOG) - 240,
        "transferFromWhere": len(LOG), "transferredByteInSecond": 77,
    }  # fmt: skip


def test_a_status_of_a_newer_broker_is_read(master: Harness) -> None:
    master.plane.header.replication.peers = [slave_entry()]
    value = status(master).to_json() | {"newField": 1}
    value["slaves"][0]["newer"] = 2
    found = HaStatus.decode(json.dumps(value).encode())
    assert found.slaves[0].address == "10.0.0.7:40000"


# ---- stock ----


def test_exchange_of_addresses(master: Harness) -> None:
    answer = master.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert answer.ext_fields == {
        "masterHaAddress": "127.0.0.1:10912", "masterFlushOffset": str(len(LOG)), "masterAddress": "127.0.0.2:30911",
    }  # fmt: skip
    told = master.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, {"masterHaAddress": "x:1", "masterAddress": "y:1"})
    assert (told.code, told.ext_fields or {}) == (0, {})
    slave = make_harness({"brokerRole": "SLAVE", "brokerId": "1"})
    assert not slave.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).ext_fields


@pytest.mark.parametrize("code", [17, 18, 215, 200, 225, 207, 353])
def test_topics_and_groups_are_changed_on_the_master_alone(code: int) -> None:
    slave = make_harness({"brokerRole": "SLAVE", "brokerId": "1"})
    answer = slave.ask(code, {"topic": "T", "groupName": "G"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "from master broker" in answer.remark


def test_a_stock_slaves_pass_ends_well(master: Harness) -> None:
    for code in (21, 43, 45, 201, 402, 61, 60):
        assert code in master.handlers.codes
        answer = master.ask(code, connection=peer(1, vip=True))
        assert answer.code == 0, (code, answer.remark)
    assert len(master.ask(RequestCode.GET_TIMER_CHECK_POINT).body) == 56
    assert read_object(master.ask(RequestCode.GET_ALL_DELAY_OFFSET).body, "x")["offsetTable"] == {}
    master.broker.copied_files.states[45].text = '{"offsetTable":{3:5}}'
    assert master.ask(RequestCode.GET_ALL_DELAY_OFFSET).body == b'{"offsetTable":{3:5}}'


def test_topics_and_groups_come_in_pages_when_asked_for(master: Harness) -> None:
    whole = read_object(master.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body, "x")
    names = sorted(whole["topicConfigTable"])
    first = master.ask(RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": "0", "maxTopicNum": "3", "dataVersion": ""})
    assert list(read_object(first.body, "x")["topicConfigTable"]) == names[:3]
    assert first.ext_fields == {"totalTopicNum": str(len(names))}
    version = json.dumps(whole["dataVersion"])
    asked = {"topicSeq": "3", "maxTopicNum": "2", "dataVersion": version}
    second = master.ask(RequestCode.GET_ALL_TOPIC_CONFIG, asked)
    assert list(read_object(second.body, "x")["topicConfigTable"]) == names[3:5]
    stale = master.ask(RequestCode.GET_ALL_TOPIC_CONFIG, asked | {"dataVersion": '{"counter":99}'})
    assert list(read_object(stale.body, "x")["topicConfigTable"]) == names[:2]
    groups = master.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "0", "maxGroupNum": "1"})
    assert len(read_object(groups.body, "x")["subscriptionGroupTable"]) == 1
    assert int(groups.ext_fields["totalGroupNum"]) > 1


# ---- progress with timer messages ----


def asked_checkpoint(master: Harness, host: str) -> tuple[int, int]:
    """Code and lastReadTimeMs of the answer to a slave at this host."""
    connection = peer(1, vip=True)._replace(host=host)
    answer = master.ask(RequestCode.GET_TIMER_CHECK_POINT, connection=connection)
    return answer.code, TimerCheckpoint.decode(bytes(answer.body)).last_read_ms if answer.code == 0 else 0


def test_a_stock_slave_gets_the_progress_for_which_its_log_is_long_enough(tmp_path: Path) -> None:
    """A RingMQ slave gets the newest: it waits for its log itself."""
    (tmp_path / "config").mkdir()
    master = make_harness({"brokerRole": "ASYNC_MASTER", "storePathRootDir": str(tmp_path)})
    master.plane.watermarks.append_offset = 9000
    peers = [slave_entry(broker_id=-1, reported_offset=2999), slave_entry(host=bytes([10, 0, 0, 9]) + bytes(12))]

    def ask(open_ms: int, marks_from: int | None) -> tuple[tuple[int, int], tuple[int, int]]:
        (tmp_path / "config" / "timercheck").write_bytes(TimerCheckpoint(open_ms, 0, 5, 5).encode_file())
        own = {"openMs": open_ms, "known": [5, open_ms], "marksFrom": marks_from}
        (tmp_path / "config" / "ringmqTimer.json").write_text(json.dumps(own))
        return asked_checkpoint(master, "10.0.0.7"), asked_checkpoint(master, "10.0.0.9")

    refused = ResponseCode.SLAVE_NOT_AVAILABLE, 0
    assert ask(1000, 500) == (refused, refused), "no slave is connected"
    master.plane.header.replication.peers = peers
    assert ask(2000, 2000) == ((0, 2000), (0, 2000))
    assert ask(3000, 3000) == ((0, 2000), (0, 3000)), "copies are on their way"
    peers[0].reported_offset = 3000
    assert ask(4000, 4000) == ((0, 3000), (0, 4000))
    assert asked_checkpoint(master, "10.1.1.1") == (0, 3000), "its stream comes from another address of its host"
    peers[0].reported_offset = 8999
    assert ask(5000, None) == ((0, 4000), (0, 5000)), "of a stock broker: the whole log counts"
    peers[0].reported_offset = 9000
    assert ask(5000, None) == ((0, 5000), (0, 5000))
    peers[0].reported_offset = 0
    assert ask(5000, None) == (refused, (0, 5000))
