"""The example of a service that answers clients, over the real write."""

from pathlib import Path

from kit_plane import ROLE, KitPlane
from plane_kit import ARENA_BYTES, Kit

from ringmq.broker.requests.request import Connection, Outbox, Reply, Request, Wait
from ringmq.ipc.ports import PortPlan
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.services.appends import Appends
from ringmq.services.hosted_service import HostedService
from ringmq.services.kit.arena import ArenaSlots
from ringmq.services.kit.shared_port import SharedPort
from tests.services.journal_service import CODE, TOPIC, JournalService
from tests.store.copy_kit import parsed

SLOTS, SLOT_BYTES = 4, 8192


class OneTopic:
    """The topics that the service looks up."""

    def __init__(self) -> None:
        self.found: tuple[int, int, int] | None = None

    def queue(self, topic: str, queue_id: int) -> tuple[int, int, int] | None:
        return self.found if topic == TOPIC else None


def asked(body: bytes) -> Request:
    return Request(RemotingCommand(CODE, body=body), Connection(0, 1, 0, 1, "127.0.0.1", 9), 0)


def test_each_request_is_answered_when_its_body_is_stored(tmp_path: Path) -> None:
    kit = Kit(tmp_path, request_slots=64, ports=(PortPlan(ROLE, ARENA_BYTES, weight=1),))
    plane, topics, outbox = KitPlane(kit, ARENA_BYTES), OneTopic(), Outbox()
    plane.role(ROLE).generation += 1
    port = SharedPort(plane, plane.port_of(ROLE))  # type: ignore[arg-type]
    appends = Appends[Request](plane, port, ArenaSlots(SLOT_BYTES, SLOTS))  # type: ignore[arg-type]
    service = JournalService(topics, appends, outbox)  # type: ignore[arg-type]
    assert isinstance(service.on_request(asked(b"x")), RemotingCommand), "without the topic"
    hosted: HostedService = service
    topic_id = kit.topic(TOPIC.encode())
    topics.found = topic_id, kit.queue_slot(topic_id, 0), 0
    answers = [hosted.on_request(asked(b"%d" % number)) for number in range(SLOTS + 1)]
    refused = answers.pop()
    assert answers == [Wait()] * SLOTS and not hosted.is_idle
    assert isinstance(refused, RemotingCommand) and refused.code == ResponseCode.SYSTEM_BUSY
    assert not hosted.turn(0) and not outbox.take()
    with kit.writer() as write:
        write()
        assert hosted.has_news and hosted.turn(0) and hosted.is_idle
        replies = [effect.command for effect in outbox.take() if isinstance(effect, Reply)]
        assert [reply.ext_fields for reply in replies] == [{"queueOffset": str(number)} for number in range(SLOTS)]
        kit.marks.write_hold = lib.RMQ_HOLD_LONGER_SLAVE
        assert hosted.on_request(asked(b"held")) == Wait()
        write()
        hosted.turn(0)
        (held,) = [effect.command for effect in outbox.take() if isinstance(effect, Reply)]
        assert held.code and held.remark == f"the body is not stored: cause {lib.RMQ_CAUSE_HELD}"
    large = hosted.on_request(asked(bytes(SLOT_BYTES)))
    assert isinstance(large, RemotingCommand) and large.code == ResponseCode.MESSAGE_ILLEGAL
    assert [parsed(data).body for _, data, _ in kit.records()] == [b"%d" % number for number in range(SLOTS)]
