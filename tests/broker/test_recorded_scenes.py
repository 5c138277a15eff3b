"""The recorded requests of stock's scenes against control's core.

What the hot path answers (stored sends, pulls with 0, 19, 20, 21) must come out as Redo here; everything else must
carry stock's code and fields.
"""

import pytest

from ringmq.broker.requests.request import Release, Run
from ringmq.broker.tables.protocols import KeyQuery
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.request_headers import SEND_CODES, decode_send_header
from tests.broker.fakes import Harness, make_harness, peer
from tests.remoting.replay import differences
from tests.remoting.scenes import SCENES, TOPIC_QUEUES, Exchange, Scene, due_exchanges

PULL_CODES = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
HOT_PULL_ANSWERS = {0, 19, 20, 21}
FIRST_EMPTY_QUEUE_RULE = "an empty queue that begins at 0 is answered 0 (the issue's rule), stock says 22"
EARLIER_GROUPS = ("WG_PUSH", "WG_BACK", "WG_POP", "WG_POP_WirePop")
"""Groups that earlier scenes of the recording had left behind, with their retry topics."""
LATER_CODES = {
    RequestCode.CONSUMER_SEND_MSG_BACK,  # the worker `services` answers it: tests/services/test_send_back_processes.py
    RequestCode.SEND_REPLY_MESSAGE_V2,  # likewise: tests/services/test_reply_processes.py
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.QUERY_CONSUME_QUEUE,
}


def cases() -> list[tuple[Scene, str]]:
    due = [scene for scene in SCENES if scene.waits_for is None or scene.waits_for == "full admin"]
    return [
        (scene, kind)
        for scene in due
        for kind in scene.kinds
        if due_exchanges(scene, kind, "b", "vip") and kind != "mixed"
    ]


@pytest.mark.parametrize(("scene", "kind"), cases(), ids=lambda value: getattr(value, "name", value))
def test_recorded_requests_get_stocks_answers(scene: Scene, kind: str) -> None:
    harness = prepared_harness()
    wrong = []
    for exchange in due_exchanges(scene, kind, "b", "vip"):
        if exchange.request.code in LATER_CODES:
            continue
        wrong += [f"{exchange.label}: {text}" for text in check(harness, exchange)]
    assert not wrong, "\n".join(wrong)


def prepared_harness() -> Harness:
    harness = make_harness()
    harness.broker.admission.publish()
    for topic, queues in TOPIC_QUEUES.items():
        harness.make_topic(topic, queues)
        for queue_id in range(queues):
            harness.store.times[topic, queue_id] = []
    for group in EARLIER_GROUPS:
        harness.join(group, {}, client_id="earlier")
        harness.broker.on_close(peer(1))
    harness.broker.outbox.take()
    return harness


def check(harness: Harness, exchange: Exchange) -> list[str]:
    """Run one request; what is wrong with the answer."""
    request, stock = exchange.request, exchange.answer
    prepare(harness, exchange)
    number = int(exchange.conn.split("-")[1])
    connection = peer(number + (100 if exchange.target == "vip" else 0), vip=exchange.target == "vip")
    is_send = request.code in SEND_CODES
    if is_send:
        body_length, request.body = len(request.body), b""
    else:
        body_length = len(request.body)
    effects = harness.effects(request, connection, body_length)
    verdict = effects[-1]
    if isinstance(verdict, Run):
        return check_redo(harness, exchange)
    if isinstance(verdict, Release):
        return [] if request.is_oneway else ["no answer"]
    answer = verdict.command  # type: ignore[union-attr]
    if is_first_offset_of_empty_queue(answer, stock, request):
        return []
    return differences(exchange, answer)


def check_redo(harness: Harness, exchange: Exchange) -> list[str]:
    request, stock = exchange.request, exchange.answer
    if request.code in SEND_CODES:
        if stock is not None and stock.code == 0:
            note_append(harness, exchange)
            return []
        return [] if request.is_oneway and stock is None else [f"redo, stock answered {stock}"]
    if request.code in PULL_CODES:
        return [] if stock is None or stock.code in HOT_PULL_ANSWERS else [f"redo, stock answered {stock}"]
    return ["redo of a request that is never hot"]


def prepare(harness: Harness, exchange: Exchange) -> None:
    """Bring the store to where stock's was: what its answer shows."""
    request, stock = exchange.request, exchange.answer
    if stock is None or stock.code != 0:
        return
    ext = request.ext_fields
    if request.code == RequestCode.VIEW_MESSAGE_BY_ID:
        harness.store.messages[int(ext["offset"])] = stock.body
    if request.code == RequestCode.QUERY_MESSAGE:
        answer = KeyQuery(
            [stock.body],
            int(stock.ext_fields["indexLastUpdateTimestamp"]),
            int(stock.ext_fields["indexLastUpdatePhyoffset"]),
        )
        harness.store.by_key[ext["topic"], ext["key"]] = answer


def note_append(harness: Harness, exchange: Exchange) -> None:
    """The hot path stored it: the queue grows."""
    assert exchange.answer is not None
    header = decode_send_header(exchange.request)
    queue_id = int(exchange.answer.ext_fields["queueId"])
    end = int(exchange.answer.ext_fields["queueOffset"]) + exchange.answer.ext_fields["msgId"].count(",") + 1
    harness.plane.set_bounds(header.topic, queue_id, 0, end)
    harness.store.times[header.topic, queue_id] = [harness.now_ms] * end


def is_first_offset_of_empty_queue(
    answer: RemotingCommand, stock: RemotingCommand | None, request: RemotingCommand
) -> bool:
    """Our one deliberate difference; see FIRST_EMPTY_QUEUE_RULE."""
    return (
        request.code == RequestCode.QUERY_CONSUMER_OFFSET
        and stock is not None
        and stock.code == ResponseCode.QUERY_NOT_FOUND
        and "setZeroIfNotFound" not in request.ext_fields
        and answer.code == 0
        and answer.ext_fields == {"offset": "0"}
    )
