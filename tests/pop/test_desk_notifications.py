"""Notifications: the desk tells a client whether a pop would find a message, or lets its read worker hold the ask."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import NOTIFICATION, READER, Answer, Stage, receipts
from test_desk_polls import answered, flags_of, offsets
from test_desk_polls import poll as pop_poll
from test_desk_waiting import while_it_sleeps

from ringmq.native import ffi, lib
from ringmq.pop.role_words import Counter
from tests.waiting import wait_until

POLL_MS = 600_000
TRUE = {"hasMsg": "true", "pollingFull": "false"}
FALSE = {"hasMsg": "false", "pollingFull": "false"}
FULL = {"hasMsg": "false", "pollingFull": "true"}
REMARK = "not set any response code"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of three queues, and a group whose windows are there."""
    made = Stage(tmp_path / "store")
    made.topic("T", 3)
    made.group("G")
    assert made.pop().code == 210
    yield made


def ask(stage: Stage, topic: str = "T", group: str = "G", **fields: Any) -> int:
    """Ask to be told of a message. Returns the token."""
    more = {key: fields.pop(key) for key in ("odd", "oneway", "connection", "role", "held_until_ns") if key in fields}
    asked = {
        "consumerGroup": group, "topic": topic, "queueId": -1, "pollTime": POLL_MS,
        "bornTime": time.time_ns() // 1_000_000,
    }  # fmt: skip
    return stage.put(NOTIFICATION, asked | fields, **more)


def poll(stage: Stage, **fields: Any) -> Answer:
    """A notification that is held."""
    token, role = ask(stage, **fields), fields.get("role", READER)
    stage.turn()
    answer = stage.verdict(role)
    assert answer is not None and answer.hold is not None, answer
    assert answer.verdict.pending == token and answer.frame == stage.asks[token]
    return answer


def told(stage: Stage, held: Answer, fields: dict[str, str] = TRUE, role: int = READER) -> None:
    """The poll is answered so."""
    answer = answered(stage, held, role)
    assert answer.verdict.type == lib.RMQ_VERDICT_SEND
    assert (answer.code, answer.command.remark, answer.fields) == (0, REMARK, fields)


def window_of(stage: Stage, queue_id: int = 0) -> Any:
    topic_id, group_id = stage.plane.topic_find("T"), stage.plane.group_find("G")
    assert topic_id is not None and group_id is not None
    return stage.desk.window_of(group_id, stage.kit.queue_slot(topic_id, queue_id))


# ---- the answer ----


@pytest.mark.parametrize("odd", [False, True])
def test_a_notification_tells_of_messages_and_takes_none(stage: Stage, odd: bool) -> None:
    answer = stage.notification(odd=odd)
    assert (answer.code, answer.command.remark, answer.fields) == (0, REMARK, FALSE)
    stage.send("T", 2, 1)
    for _ in range(2):
        assert stage.notification(odd=odd).fields == TRUE
    assert stage.notification(queueId=0, odd=odd).fields == FALSE
    assert stage.pop().fields["msgOffsetInfo"] == "0 1 0,1"
    assert stage.notification(odd=odd).fields == FALSE
    counted = [stage.desk.native.counted(each) for each in (Counter.NOTIFIED, Counter.NOT_NOTIFIED)]
    assert counted == [2, 3]


def test_a_group_without_windows_begins_at_its_offset(stage: Stage) -> None:
    """A notification makes no window."""
    group_id, topic_id = stage.group("H"), stage.plane.topic_find("T")
    assert topic_id is not None
    stage.send("T", 2)
    lines = list(stage.names.lines)
    assert stage.notification(group="H").fields == TRUE
    slot = stage.kit.queue_slot(topic_id, 0)
    lib.rmq_offset_put(stage.kit.plane, group_id, slot, 1)
    assert stage.notification(group="H").fields == TRUE
    lib.rmq_offset_put(stage.kit.plane, group_id, slot, 2)
    assert stage.notification(group="H").fields == FALSE
    assert stage.names.lines == lines


def test_messages_that_retention_has_deleted_are_not_there(stage: Stage) -> None:
    stage.send("T", 3)
    topic_id = stage.plane.topic_find("T")
    assert topic_id is not None
    queue = stage.kit.queue(topic_id, 0)
    queue.min_offset = 2
    assert stage.notification().fields == TRUE
    queue.min_offset = 3
    assert stage.notification().fields == FALSE


@pytest.mark.parametrize("name", ["%RETRY%G_T", "%RETRY%G+T"])
@pytest.mark.parametrize(("v2", "v1"), [(False, True), (True, True), (True, False)])
def test_retries_of_the_forms_that_a_pop_reads_are_there(stage: Stage, name: str, v2: bool, v1: bool) -> None:
    stage.set(enable_retry_topic_v2=v2, retrieve_message_from_pop_retry_topic_v1=v1)
    stage.topic(name)
    stage.send(name, 1)
    is_read = v2 if "+" in name else v1 or not v2
    for queue_id in (-1, 2):
        assert stage.notification(queueId=queue_id).fields == (TRUE if is_read else FALSE)


def test_messages_that_no_client_has_received_are_there_again(stage: Stage) -> None:
    stage.send("T", 1)
    answer = stage.pop()
    assert stage.notification().fields == FALSE
    stage.unsent(answer.verdict)
    assert stage.notification().fields == TRUE


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"topic": "none"}, 17, "topic[none] not exist, apply first please!"),
    ({"queueId": 3}, 29, "queueId[3] is illegal, topic:[T] topicConfig.readQueueNums:[3] consumer:[/127.0.0.1:4321]"),
    ({"consumerGroup": "none"}, 26, "subscription group [none] does not exist,"),
    ({"consumerGroup": "off"}, 16, "subscription group no permission, off"),
    ({"topic": "closed"}, 16, "the topic[closed] peeking message is forbidden"),
]


@pytest.mark.parametrize(("fields", "code", "remark"), REFUSED)
@pytest.mark.parametrize("odd", [False, True])
def test_refusals(stage: Stage, fields: dict[str, Any], code: int, remark: str, odd: bool) -> None:
    stage.set(auto_create_subscription_group=False)
    stage.group("off", lib.RMQ_GROUP_LIVE)
    stage.topic("closed", perm=2)
    answer = stage.notification(**({"pollTime": POLL_MS} | fields), odd=odd)
    assert answer.code == code and answer.command.remark is not None
    assert answer.command.remark.startswith(remark) and answer.fields == FALSE


def test_the_checks_have_the_order_of_stock(stage: Stage) -> None:
    stage.set(broker_permission=2, auto_create_subscription_group=False)
    everything = {"topic": "none", "queueId": 9, "consumerGroup": "none"}
    assert stage.notification(**everything).command.remark == "the broker[] peeking message is forbidden"
    stage.set(broker_permission=6)
    for name, right, code in (
        ("topic", "T", 17),
        ("queueId", 2, 29),
        ("consumerGroup", "G", 26),
    ):
        assert stage.notification(**everything).code == code
        everything[name] = right
    assert stage.notification(**everything).fields == FALSE


def test_a_missing_group_is_made(stage: Stage) -> None:
    ask(stage, group="new")
    stage.turn()
    assert stage.verdict() is None
    ((name, then),) = stage.control.asked
    assert name == "new"
    stage.group("new")
    then(None)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.hold is not None


# ---- a poll begins and ends ----


@pytest.mark.parametrize("odd", [False, True])
def test_a_notification_waits_for_a_message(stage: Stage, odd: bool) -> None:
    before_ns = time.monotonic_ns()
    held = poll(stage, odd=odd)
    after_ns = time.monotonic_ns()
    assert held.hold is not None
    assert before_ns + (POLL_MS - 1000) * 1_000_000 < held.hold.until_ns <= after_ns + (POLL_MS + 1000) * 1_000_000
    assert (held.code, held.command.remark, held.fields) == (0, REMARK, FALSE), "the answer at its time"
    assert not stage.desk.is_idle, "the worker does not rest meanwhile"
    stage.send("T", 1, 1)
    stage.turn()
    told(stage, held)
    assert stage.pop().fields["msgOffsetInfo"] == "0 1 0", "it has taken no message"


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"pollTime": 0}, False), ({"pollTime": -1}, False), ({"pollTime": 40}, False),
        ({"bornTime": 1}, False), ({"bornTime": -(2**63), "pollTime": 1}, False),
        ({"bornTime": -(2**63), "pollTime": 2**63 - 1}, False), ({"bornTime": 2**63 - 1}, True),
        ({"pollTime": 2**63 - 1}, True), ({"bornTime": 0}, True), ({"bornTime": None}, True),
    ],
)  # fmt: skip
def test_the_time_of_a_notification(stage: Stage, fields: dict[str, Any], waits: bool) -> None:
    """One whose time is over is answered, however late it is: stock refuses none. None waits longer than an hour."""
    ask(stage, **fields)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and (answer.hold is not None) == waits
    assert answer.fields == FALSE
    if answer.hold is not None:
        assert answer.hold.until_ns - time.monotonic_ns() < 3601 * 10**9
    stage.send("T", 1)
    stage.turn()
    if not waits:
        ask(stage, **fields)
        stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.fields == TRUE


@pytest.mark.parametrize("is_there", [False, True])
def test_a_notification_ends_at_its_time(stage: Stage, is_there: bool) -> None:
    """It looks once more then."""
    held = poll(stage, pollTime=1000)
    if is_there:
        topic_id = stage.plane.topic_find("T")
        assert topic_id is not None
        flags_of(stage)[stage.kit.queue_slot(topic_id, 0)] = 0
        stage.send("T", 1)
    seen: list[Answer] = []

    def is_over() -> bool:
        stage.turn()
        seen.extend(filter(None, [stage.verdict()]))
        return bool(seen)

    wait_until(is_over, "its time is over")
    (answer,) = seen
    assert held.hold is not None and answer.verdict.pending == held.hold.slot
    assert (answer.code, answer.fields) == (0, TRUE if is_there else FALSE)
    assert time.monotonic_ns() >= held.hold.until_ns - 51_000_000, "at most 50 ms early, as in RocketMQ"
    assert stage.desk.is_idle


@pytest.mark.parametrize("limits", [{"pop_polling_size": 1}, {"max_pop_polling_size": 2}, {"pop_polling_map_size": 2}])
def test_too_many_notifications_are_told_so(stage: Stage, limits: dict[str, int]) -> None:
    """Polls of pops have the same limits, and count apart."""
    stage.set(**limits)
    is_map = "pop_polling_map_size" in limits
    queues = [0, 1, 2] if is_map else [-1] * 3
    for each in (poll, pop_poll):
        for queue_id in queues[:2]:
            each(stage, queueId=queue_id)
    assert stage.notification(queueId=queues[2], pollTime=POLL_MS, bornTime=time.time_ns() // 1_000_000).fields == FULL
    assert stage.desk.native.counted(Counter.NOTIFY_FULL) == 1
    assert stage.desk.native.counted(Counter.FULL) == 0
    assert stage.polling_info(queueId=queues[0]).fields == {"pollingNum": "1" if is_map else "2"}, "of pops alone"


def test_a_oneway_notification_does_not_wait(stage: Stage) -> None:
    ask(stage, oneway=True)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.verdict.type == lib.RMQ_VERDICT_DROP


# ---- clients that are gone ----


@pytest.mark.parametrize("how", ["closed", "refused", "reader"])
def test_a_notification_whose_client_is_gone_is_over(stage: Stage, how: str) -> None:
    held = poll(stage, connection=4)
    if how == "closed":
        stage.note(lib.RMQ_INBOX_CLOSED, connection=4)
    elif how == "refused":
        stage.unsent(held.verdict)
    else:
        stage.generation = stage.kit.header.roles[READER].generation = 6
        stage.now_ms += 1000
    stage.turn()
    assert len(stage.desk.native.polls) == 0
    stage.send("T", 1)
    stage.turn()
    assert stage.verdict() is None


# ---- messages ----


def test_a_message_is_told_to_the_newest_notification(stage: Stage) -> None:
    held = [poll(stage) for _ in range(3)]
    for number in (2, 1, 0):
        stage.send("T", 1, 2)
        stage.turn()
        told(stage, held[number])
        assert stage.verdict() is None, "one for a message"
        assert stage.pop().code == 0


def test_as_many_notifications_as_messages_are_told(stage: Stage) -> None:
    """Messages of one turn do not wait for one another's consumers."""
    held = [poll(stage) for _ in range(6)]
    stage.send("T", 2, 0)
    stage.send("T", 2, 1)
    stage.turn()
    for number in (5, 4, 3, 2):
        told(stage, held[number])
    assert stage.verdict() is None


def test_a_message_that_stays_is_told_once(stage: Stage) -> None:
    """Consumers of the messages before are on their way. A notification that begins meanwhile is told at once."""
    held = [poll(stage) for _ in range(6)]
    for number in (5, 4, 3):
        stage.send("T", 1)
        stage.turn()
        told(stage, held[number])
        assert stage.verdict() is None
    assert stage.notification().fields == TRUE
    assert stage.pop().fields["msgOffsetInfo"] == "0 0 0,1,2"
    stage.send("T", 2)
    stage.turn()
    for number in (2, 1):
        told(stage, held[number])
    assert stage.verdict() is None


def test_one_notification_is_told_of_messages_that_are_there_again(stage: Stage) -> None:
    stage.send("T", 4)
    answer = stage.pop()
    held = [poll(stage) for _ in range(3)]
    stage.unsent(answer.verdict)
    stage.turn()
    told(stage, held[2])
    assert stage.verdict() is None


def test_a_message_is_told_to_notifications_of_its_queue_of_all_queues_and_of_each_group(stage: Stage) -> None:
    stage.group("H")
    assert stage.pop(group="H").code == 210
    held = [poll(stage), poll(stage, queueId=1), poll(stage, group="H", queueId=-9)]
    other = poll(stage, queueId=0)
    stage.send("T", 1, 1)
    stage.turn()
    slots = {answer.verdict.pending for _ in held if (answer := stage.verdict()) and answer.fields == TRUE}
    assert slots == {each.hold.slot for each in held if each.hold}
    assert stage.verdict() is None
    stage.send("T", 1, 0)
    stage.turn()
    told(stage, other)


@pytest.mark.parametrize("name", ["%RETRY%G_T", "%RETRY%G+T"])
def test_a_retry_of_either_form_is_told(stage: Stage, name: str) -> None:
    """Its topic is made while the notification waits."""
    stage.set(enable_retry_topic_v2=True)
    held = [poll(stage, queueId=1), poll(stage, queueId=1)]
    stage.topic(name)
    stage.desk.look_for_retries()
    stage.turn()
    assert stage.verdict() is None
    stage.send(name, 1)
    stage.desk.look_for_retries()  # nothing told of the first message
    stage.turn()
    told(stage, held[1])
    for _ in range(4):
        stage.pop()  # either form, drawn by lot
    stage.send(name, 1)
    stage.turn()
    told(stage, held[0])


def test_a_message_goes_to_a_pop_and_a_notification_alike(stage: Stage) -> None:
    """If the pop is first, the notification finds nothing and goes on waiting."""
    popping, held = pop_poll(stage), poll(stage)
    stage.send("T", 1)
    stage.turn()
    answers = [answer for _ in range(2) if (answer := stage.verdict())]
    assert popping.hold is not None and held.hold is not None
    by_slot = {answer.verdict.pending: answer for answer in answers}
    assert offsets(by_slot[popping.hold.slot]) == "0 0 0"
    assert len(stage.desk.native.polls) == (held.hold.slot not in by_slot)


def test_an_answer_that_no_client_has_got_is_told(stage: Stage) -> None:
    stage.send("T", 1)
    answer = stage.pop()
    held = poll(stage)
    stage.unsent(answer.verdict)
    stage.turn()
    told(stage, held)


def test_a_window_that_begins_anew_is_told(stage: Stage) -> None:
    stage.send("T", 2)
    stage.pop()
    held = poll(stage)
    stage.desk.windows.begin_at(window_of(stage), 0)
    group_id = stage.plane.group_find("G")
    assert group_id is not None
    stage.desk.wake_group(group_id)
    stage.turn()
    told(stage, held)


def test_messages_at_a_bound_are_told_when_a_pop_can_get_them(stage: Stage) -> None:
    stage.set(enable_pop_message_threshold=True, pop_inflight_message_threshold=1)
    stage.send("T", 3)
    first = stage.pop(maxMsgNums=2)
    assert stage.notification().fields == FALSE
    held = poll(stage)
    stage.turn()
    assert stage.verdict() is None
    assert stage.desk.native.polls.sleep_ms() <= 10, "it is tried again soon"
    assert stage.ack(receipts(first)[0]).code == 0
    seen: list[Answer] = []

    def is_told() -> bool:
        stage.turn()
        seen.extend(filter(None, [stage.verdict()]))
        return bool(seen)

    wait_until(is_told, "the bound has moved")
    assert seen[0].fields == TRUE and held.hold is not None and seen[0].verdict.pending == held.hold.slot


def test_a_told_message_hides_none_at_a_bound(stage: Stage) -> None:
    """Another queue has it, so that one notification is told before the bound moves."""
    stage.set(enable_pop_message_threshold=True, pop_inflight_message_threshold=1)
    stage.send("T", 3)
    first = stage.pop(maxMsgNums=2)
    held = [poll(stage), poll(stage)]
    stage.turn()
    stage.send("T", 1, 1)
    stage.turn()
    told(stage, held[1])
    assert stage.pop(queueId=1).code == 0
    assert stage.ack(receipts(first)[0]).code == 0
    wait_until(lambda: stage.turn() or stage.has_verdict(), "the bound has moved")
    told(stage, held[0])


def test_messages_that_no_client_has_received_are_told_at_a_bound(stage: Stage) -> None:
    """The bound is about messages that consumers hold."""
    stage.set(enable_pop_message_threshold=True, pop_inflight_message_threshold=1)
    stage.send("T", 3)
    answer = stage.pop()
    assert stage.notification().fields == FALSE
    held = poll(stage)
    stage.unsent(answer.verdict)
    stage.turn()
    told(stage, held)


def test_no_message_is_told_while_too_many_are_open(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "store", entries_max=64)
    stage.topic("T")
    stage.group("G")
    stage.send("T", 2)
    assert stage.notification().fields == TRUE
    stage.pop(maxMsgNums=1)
    stage.desk.native.struct.share_max = 1
    assert stage.notification().fields == FALSE
    assert stage.pop().code == 210


def test_a_full_ring_of_answers_stops_no_other_read_worker(stage: Stage) -> None:
    stage.kit.header.roles[READER + 1].generation = stage.generation
    free, full = poll(stage, role=READER + 1), poll(stage)
    head = ffi.new("struct rmq_verdict *", {"type": lib.RMQ_VERDICT_SEND, "last": 1})
    while lib.rmq_verdict_add(stage.kit.plane, stage.answerer, READER, head, bytes(16_000), 16_000) == 0:
        pass
    stage.send("T", 2)
    stage.turn()
    told(stage, free, role=READER + 1)
    ring = stage.kit.header.asks.answerer[stage.answerer].answers[READER]
    ring.tail = ring.head  # the read worker goes on
    seen: list[Answer] = []

    def is_told() -> bool:
        stage.turn()
        seen.extend(filter(None, [stage.verdict()]))
        return bool(seen)

    wait_until(is_told, "there is room again")
    assert seen[0].fields == TRUE and full.hold is not None and seen[0].verdict.pending == full.hold.slot


def test_a_turn_ends_with_its_time_and_the_next_one_goes_on(stage: Stage) -> None:
    for _ in range(3):
        poll(stage)
    stage.desk.native.struct.polls_ns = 0
    stage.send("T", 3)
    for left in (2, 1, 0):
        lib.rmq_pop_waiting_turn(stage.desk.native.struct)
        answer = stage.verdict()
        assert answer is not None and answer.fields == TRUE and stage.verdict() is None
        assert len(stage.desk.native.polls) == left


# ---- another process, another configuration ----


@pytest.mark.parametrize("odd", [False, True])
def test_another_process_goes_on_with_a_notification(stage: Stage, odd: bool) -> None:
    """The read worker asks it again, and says until when."""
    first = poll(stage, bornTime=0)
    stage.restart()
    assert first.hold is not None
    again = poll(stage, bornTime=0, odd=odd, held_until_ns=first.hold.until_ns)
    assert again.hold is not None and again.hold.until_ns == first.hold.until_ns
    stage.send("T", 1)
    stage.turn()
    told(stage, again)


@pytest.mark.parametrize("what", ["topic", "group", "stopped"])
def test_a_notification_that_cannot_be_served_any_more_is_refused(stage: Stage, what: str) -> None:
    held = [poll(stage), poll(stage)]
    topic_id, group_id = stage.plane.topic_find("T"), stage.plane.group_find("G")
    if what == "topic":
        lib.rmq_topic_set(stage.kit.plane, topic_id, 0)
    elif what == "group":
        lib.rmq_group_set(stage.kit.plane, group_id, 0)
    else:
        stage.desk.stop("the disk is full")
    stage.set(auto_create_subscription_group=False)
    stage.now_ms += 1000
    for _ in range(2):  # a look, and the turn that follows it
        stage.turn()
    for each in reversed(held):
        assert answered(stage, each).verdict.type == lib.RMQ_VERDICT_REDO
        assert each.hold is not None
        ask(stage, held_until_ns=each.hold.until_ns)
    stage.turn()
    answers = [answer for answer in (stage.verdict(), stage.verdict()) if answer]
    assert [answer.code for answer in answers] == [{"topic": 17, "group": 26, "stopped": 1}[what]] * 2
    assert all(answer.fields == FALSE for answer in answers)


def test_a_notification_of_a_topic_that_is_made_anew_is_asked_again(stage: Stage) -> None:
    held = poll(stage)
    topic_id = stage.plane.topic_find("T")
    assert topic_id is not None and held.hold is not None
    lib.rmq_topic_set(stage.kit.plane, topic_id, 0)
    stage.topic("T", 3)
    stage.now_ms += 1000
    for _ in range(2):  # a look, and the turn that follows it
        stage.turn()
    assert answered(stage, held).verdict.type == lib.RMQ_VERDICT_REDO
    again = poll(stage, held_until_ns=held.hold.until_ns)
    stage.send("T", 1)
    stage.turn()
    told(stage, again)


def test_a_message_is_told_while_python_sleeps(stage: Stage) -> None:
    held = poll(stage)
    assert while_it_sleeps(stage, lambda: stage.send("T", 1)) == lib.RMQ_SERVING_DUE
    told(stage, held)
