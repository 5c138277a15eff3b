"""Pops that wait: the desk lets the read worker hold them, gives them the messages that come, and ends them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from desk_stage import POP, READER, ROLE, Answer, Stage, receipts
from test_desk_waiting import reason_of, while_it_sleeps

from ringmq.native import ffi, lib
from ringmq.pop.native_desk import SHARE_OF_ENTRIES
from ringmq.pop.role_words import Counter
from tests.waiting import wait_until

POLL_MS = 600_000
ZEROS = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of three queues, and a group whose windows are there."""
    made = Stage(tmp_path / "store")
    made.topic("T", 3)
    made.group("G")
    assert made.pop().code == 210
    yield made


def ask(stage: Stage, topic: str = "T", group: str = "G", **fields: Any) -> int:
    """Ask for messages, and wait for them. Returns the token."""
    more = {key: fields.pop(key) for key in ("odd", "oneway", "connection", "role", "held_until_ns") if key in fields}
    asked = {
        "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000,
        "pollTime": POLL_MS, "bornTime": time.time_ns() // 1_000_000, "initMode": 0, "expType": "TAG", "exp": "*",
    }  # fmt: skip
    return stage.put(POP, asked | fields, **more)


def poll(
    stage: Stage, topic: str = "T", group: str = "G", *, turn: Callable[[], object] | None = None, **fields: Any
) -> Answer:
    """A poll that is held."""
    token, role = ask(stage, topic, group, **fields), fields.get("role", READER)
    (turn or stage.turn)()
    answer = stage.verdict(role)
    assert answer is not None and answer.hold is not None, answer
    assert answer.verdict.pending == token and answer.frame == stage.asks[token]
    return answer


def answered(stage: Stage, held: Answer, role: int = READER) -> Answer:
    """The answer to a poll, which is the next one."""
    answer = stage.verdict(role)
    assert answer is not None and held.hold is not None
    assert answer.verdict.flags & lib.RMQ_VERDICT_HELD
    assert (answer.verdict.pending, answer.verdict.serial) == (held.hold.slot, held.verdict.serial)
    return answer


def next_answer(stage: Stage, held: Answer) -> Answer:
    """The answer to a poll, once it comes."""
    wait_until(lambda: stage.turn() or stage.has_verdict(), "the poll is answered")
    return answered(stage, held)


def offsets(answer: Answer) -> str:
    assert answer.verdict.type == lib.RMQ_VERDICT_RECORDS and answer.verdict.flags & lib.RMQ_VERDICT_TELLS
    return answer.fields["msgOffsetInfo"]


def flags_of(stage: Stage) -> Any:
    """The flags of the queues whose arrivals the desk wants."""
    port = stage.kit.header.ports.port[stage.plane.port_of(ROLE)]
    return ffi.cast("uint8_t *", stage.kit.plane.base) + port.parked_flags_at


def tagged(tag: str) -> dict[str, bytes]:
    return {"properties": b"TAGS\x01%s\x02" % tag.encode()}


# ---- a poll begins and ends ----


@pytest.mark.parametrize("odd", [False, True])
def test_a_pop_that_finds_nothing_waits_for_a_message(stage: Stage, odd: bool) -> None:
    before_ns = time.monotonic_ns()
    held = poll(stage, odd=odd)
    after_ns = time.monotonic_ns()
    assert held.hold is not None and not held.verdict.flags & lib.RMQ_VERDICT_HELD
    assert before_ns + (POLL_MS - 1000) * 1_000_000 < held.hold.until_ns <= after_ns + (POLL_MS + 1000) * 1_000_000
    assert (held.code, held.command.remark, held.fields) == (210, "NO_MESSAGE_IN_QUEUE", ZEROS)
    assert not stage.desk.is_idle, "the worker does not rest while a poll waits"
    stage.send("T", 2, 1)
    stage.turn()
    answer = answered(stage, held)
    assert offsets(answer) == "0 1 0,1" and len(answer.messages) == 2
    assert answer.command.opaque == held.verdict.pending
    assert stage.ack(receipts(answer)[0]).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == 1
    assert stage.desk.is_idle and stage.verdict() is None


def test_the_first_pop_of_a_group_waits_too(stage: Stage) -> None:
    """Python makes its windows first."""
    stage.group("H")
    held = poll(stage, group="H")
    stage.send("T", 1)
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 0"


@pytest.mark.parametrize("fields", [{"pollTime": 0}, {"pollTime": -1}, {"pollTime": 40}, {"pollTime": 2**63 - 1}])
def test_the_time_of_a_poll(stage: Stage, fields: dict[str, Any]) -> None:
    """One that would be over within 50 ms is answered at once, and none waits longer than an hour."""
    ask(stage, **fields)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    if fields["pollTime"] <= 50:
        assert (answer.verdict.type, answer.code) == (lib.RMQ_VERDICT_SEND, 210)
        assert answer.fields["invisibleTime"] == "60000"
    else:
        assert answer.hold is not None
        assert abs(answer.hold.until_ns - time.monotonic_ns() - 3600 * 10**9) < 10 * 10**9


def test_a_poll_ends_at_its_time(stage: Stage) -> None:
    held = poll(stage, pollTime=1000)
    answer = next_answer(stage, held)
    assert held.hold is not None and answer.verdict.type == lib.RMQ_VERDICT_SEND
    assert (answer.code, answer.command.remark) == (210, "NO_MESSAGE_IN_QUEUE")
    assert answer.fields["invisibleTime"] == "60000" and answer.fields["popTime"] != "0"
    assert time.monotonic_ns() >= held.hold.until_ns - 51_000_000, "at most 50 ms early, as in RocketMQ"
    assert stage.desk.is_idle


def test_the_sleep_ends_with_the_first_poll(stage: Stage) -> None:
    poll(stage)
    polls = stage.desk.native.polls
    assert polls.sleep_ms() > 900
    poll(stage, pollTime=850)
    assert polls.sleep_ms() <= 800


@pytest.mark.parametrize(
    "limits",
    [{"pop_polling_size": 1}, {"max_pop_polling_size": 2}, {"pop_polling_map_size": 2}],
)
def test_too_many_polls_are_answered_as_full(stage: Stage, limits: dict[str, int]) -> None:
    """As in stock, a key has one poll more than its limit."""
    stage.set(**limits)
    is_map = "pop_polling_map_size" in limits
    held = [poll(stage, queueId=number if is_map else -1) for number in range(2)]
    ask(stage, queueId=2 if is_map else -1)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    assert (answer.verdict.type, answer.code, answer.command.remark) == (
        lib.RMQ_VERDICT_SEND, 209, "NO_MESSAGE_IN_QUEUE"
    )  # fmt: skip
    assert answer.fields["invisibleTime"] == "60000"
    assert stage.desk.native.counted(Counter.FULL) == 1
    stage.unsent(held[0].verdict)
    stage.turn()
    poll(stage, queueId=0 if is_map else -1)


@pytest.mark.parametrize("wanted", [0, -1])
def test_a_pop_that_wants_no_message_does_not_wait(stage: Stage, wanted: int) -> None:
    """Polls behind it would wait, too: a poll without a filter that gets nothing is the last one that is served."""
    ask(stage, maxMsgNums=wanted)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and (answer.verdict.type, answer.code) == (lib.RMQ_VERDICT_SEND, 210)


def test_a_oneway_pop_does_not_wait(stage: Stage) -> None:
    ask(stage, oneway=True)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.verdict.type == lib.RMQ_VERDICT_DROP


# ---- clients that are gone ----


@pytest.mark.parametrize("how", ["closed", "refused", "reader"])
def test_a_poll_whose_client_is_gone_takes_no_message(stage: Stage, how: str) -> None:
    held = poll(stage, connection=4)
    other = poll(stage, connection=5) if how != "reader" else None
    if how == "closed":
        stage.note(lib.RMQ_INBOX_CLOSED, connection=4)
    elif how == "refused":
        stage.unsent(held.verdict)
    else:
        stage.generation = stage.kit.header.roles[READER].generation = 6
        stage.now_ms += 1000
    stage.turn()
    assert len(stage.desk.native.polls) == (other is not None)
    stage.send("T", 1)
    stage.turn()
    if other is not None:
        assert offsets(answered(stage, other)) == "0 0 0"
    assert stage.verdict() is None


def test_an_answer_that_no_client_has_got_goes_to_the_next_poll(stage: Stage) -> None:
    first, second = poll(stage), poll(stage)
    stage.send("T", 1)
    stage.turn()
    answer = answered(stage, first)
    assert stage.verdict() is None
    stage.unsent(answer.verdict)
    stage.turn()
    assert offsets(answered(stage, second)) == "0 0 0"
    assert stage.desk.native.counted(Counter.UNSENT) == 1


# ---- messages ----


def test_a_message_goes_to_the_oldest_poll(stage: Stage) -> None:
    held = [poll(stage, odd=number == 1) for number in range(3)]
    for number, each in enumerate(held):
        stage.send("T", 1, 2)
        stage.turn()
        assert offsets(answered(stage, each)) == f"0 2 {number}"
        assert stage.verdict() is None, "one poll for a message"


def test_the_rest_of_an_answer_goes_to_the_next_poll(stage: Stage) -> None:
    held = [poll(stage, maxMsgNums=2) for _ in range(3)]
    stage.send("T", 5)
    stage.turn()
    assert [offsets(answered(stage, each)) for each in held] == ["0 0 0,1", "0 0 2,3", "0 0 4"]


def test_a_pop_that_leaves_messages_wakes_a_poll(stage: Stage) -> None:
    held = poll(stage)
    topic_id = stage.plane.topic_find("T")
    assert topic_id is not None
    flags_of(stage)[stage.kit.queue_slot(topic_id, 0)] = 0
    stage.send("T", 3)
    stage.turn()
    assert stage.verdict() is None, "the arrival was not told"
    ask(stage, maxMsgNums=1)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.fields["msgOffsetInfo"] == "0 0 0"
    assert offsets(answered(stage, held)) == "0 0 1,2"


def test_polls_of_a_queue_and_of_all_queues(stage: Stage) -> None:
    one, every = poll(stage, queueId=1), poll(stage, queueId=-7)
    stage.send("T", 1, 0)
    stage.turn()
    assert offsets(answered(stage, every)) == "0 0 0"
    assert stage.verdict() is None
    stage.send("T", 1, 1)
    stage.turn()
    assert offsets(answered(stage, one)) == "0 1 0"


def test_groups_get_the_same_message(stage: Stage) -> None:
    stage.group("H")
    held = {group: poll(stage, group=group) for group in "GH"}
    stage.send("T", 1)
    stage.turn()
    answers = [stage.verdict(), stage.verdict()]
    slots = {answer.verdict.pending for answer in answers if answer}
    assert slots == {each.hold.slot for each in held.values() if each.hold}


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("name", ["%RETRY%G_T", "%RETRY%G+T"])
def test_retries_wake_polls(stage: Stage, name: str, is_late: bool) -> None:
    """Of either form, drawn by lot or not, and in a topic that is made while the poll waits."""
    stage.set(enable_retry_topic_v2=True)
    if not is_late:
        for topic in ("%RETRY%G_T", "%RETRY%G+T"):
            stage.topic(topic)
            for _ in range(4):
                stage.pop()
    for number in range(8):
        held = poll(stage, queueId=1 if number % 2 else -1)
        if is_late and not number:
            stage.topic(name)
        stage.send(name, 1)
        if is_late and not number:
            stage.desk.look_for_retries()  # nothing told of the message
        stage.turn()
        answer = stage.verdict()
        assert answer is not None
        if answer.verdict.type == lib.RMQ_VERDICT_REDO:  # its window is made by a request
            assert number == 0 and is_late
            ask(stage, held_until_ns=held.hold.until_ns if held.hold else 0)
            stage.turn()
            answer = stage.verdict()
        assert answer is not None and answer.code == 0
        flag = "2" if "+" in name else "1"
        assert answer.fields["msgOffsetInfo"] == f"{flag} 0 {number}"


def test_a_message_that_is_there_in_the_other_form_of_retries_is_found_at_once(stage: Stage) -> None:
    stage.set(enable_retry_topic_v2=True)
    for topic in ("%RETRY%G_T", "%RETRY%G+T"):
        stage.topic(topic)
        for _ in range(4):
            stage.pop()
    for number in range(8):
        stage.send("%RETRY%G_T", 1)
        ask(stage)
        stage.turn()
        answer = stage.verdict()
        assert answer is not None and answer.fields["msgOffsetInfo"] == f"1 0 {number}"


# ---- filters ----


def test_a_poll_leaves_messages_that_its_filter_does_not_want(stage: Stage) -> None:
    held = poll(stage, exp="a")
    stage.send("T", 3, **tagged("b"))
    stage.turn()
    assert stage.verdict() is None
    assert stage.pop(exp="b", maxMsgNums=2).fields["msgOffsetInfo"] == "0 0 0,1"
    stage.send("T", 1, **tagged("a"))
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 3"


@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
def test_a_message_goes_to_the_first_poll_that_wants_it(stage: Stage, kind: str) -> None:
    expressions = ["a", "b"] if kind == "TAG" else ["TAGS = 'a'", "TAGS = 'b'"]
    held = [poll(stage, expType=kind, exp=expression) for expression in (expressions[0], *expressions)]
    stage.send("T", 1, **tagged("b"))
    stage.turn()
    assert offsets(answered(stage, held[2])) == "0 0 0"
    stage.send("T", 1, **tagged("a"))
    stage.turn()
    assert offsets(answered(stage, held[0])) == "0 0 1"


def test_many_messages_that_no_poll_wants_are_done(stage: Stage) -> None:
    poll(stage, exp="a")
    stage.send("T", 256, **tagged("b"))
    stage.turn()
    topic_id = stage.plane.topic_find("T")
    group_id = stage.plane.group_find("G")
    assert topic_id is not None and group_id is not None
    window = stage.desk.window_of(group_id, stage.kit.queue_slot(topic_id, 0))
    assert window is not None
    assert stage.desk.windows.native(window).next_offset == 0
    stage.send("T", 1, **tagged("b"))
    stage.turn()
    assert stage.desk.windows.native(window).next_offset == 257


# ---- what cannot be given now ----


def test_polls_wait_at_a_bound(stage: Stage) -> None:
    stage.set(enable_pop_message_threshold=True, pop_inflight_message_threshold=1)
    stage.send("T", 3)
    first = stage.pop(maxMsgNums=2)
    held = poll(stage)
    stage.turn()
    assert stage.verdict() is None
    assert stage.desk.native.polls.sleep_ms() <= 10, "it is tried again soon"
    assert stage.ack(receipts(first)[0]).code == 0
    assert offsets(next_answer(stage, held)) == "0 0 2"
    assert stage.desk.native.counted(Counter.BOUND) == 0


def test_polls_wait_at_a_bound_for_a_message_that_was_returned(tmp_path: Path) -> None:
    """Nothing is behind it in the queue."""
    stage = Stage(tmp_path / "store", entries_max=1024)
    stage.topic("T")
    stage.group("G")
    stage.send("T", 1024 // SHARE_OF_ENTRIES)
    answers = []
    while (answer := stage.pop(maxMsgNums=1)).code == 0:
        answers.append(answer)
    stage.unsent(answers[0].verdict)
    stage.turn()
    held = poll(stage)
    stage.turn()
    assert stage.verdict() is None
    assert stage.desk.native.polls.sleep_ms() <= 10, "it is tried again soon"
    assert stage.ack(receipts(answers[1])[0]).code == 0
    assert offsets(next_answer(stage, held)) == "0 0 0"


@pytest.mark.parametrize("topic", ["T", "%RETRY%G_T"])
def test_a_queue_that_cannot_be_read_for_good_is_not_tried_again_and_again(stage: Stage, topic: str) -> None:
    stage.topic("%RETRY%G_T")
    assert stage.pop().code == 210, "its window is there"
    stage.send(topic, 1)
    unit = stage.kit.root / "consumequeue" / topic / "0" / f"{0:020}"
    with unit.open("r+b") as file:
        file.write(bytes(20))
    held = poll(stage)
    assert stage.desk.native.polls.sleep_ms() > 10
    for _ in range(2):
        stage.now_ms += 2000
        stage.turn()
    (line,) = [line for line in stage.lines if "cannot be read" in line]
    assert topic in line and "queue 0" in line
    stage.send("T", 1, 1)
    stage.turn()
    assert offsets(answered(stage, held)) == "0 1 0", "other queues go on"


def test_a_full_ring_of_answers_stops_no_other_read_worker(stage: Stage) -> None:
    stage.kit.header.roles[READER + 1].generation = stage.generation
    full, free = poll(stage), poll(stage, role=READER + 1)
    head = ffi.new("struct rmq_verdict *", {"type": lib.RMQ_VERDICT_SEND, "last": 1})
    while lib.rmq_verdict_add(stage.kit.plane, stage.answerer, READER, head, bytes(16_000), 16_000) == 0:
        pass
    stage.send("T", 1)
    stage.turn()
    assert offsets(answered(stage, free, READER + 1)) == "0 0 0"
    stage.send("T", 1)
    stage.turn()
    ring = stage.kit.header.asks.answerer[stage.answerer].answers[READER]
    ring.tail = ring.head  # the read worker goes on
    assert offsets(next_answer(stage, full)) == "0 0 1"


def test_a_window_that_begins_anew_wakes_the_polls_of_its_group(stage: Stage) -> None:
    stage.send("T", 2)
    stage.pop()
    held = poll(stage)
    topic_id, group_id = stage.plane.topic_find("T"), stage.plane.group_find("G")
    assert topic_id is not None and group_id is not None
    window = stage.desk.window_of(group_id, stage.kit.queue_slot(topic_id, 0))
    assert window is not None
    stage.desk.windows.begin_at(window, 0)
    stage.desk.wake_group(group_id)
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 0,1"


# ---- another clock, another process, another configuration ----


@pytest.mark.parametrize("is_again", [False, True])
def test_a_jump_of_the_wall_clock_ends_no_poll(stage: Stage, is_again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where another process goes on with it, either."""
    held, jump_ns = poll(stage), 2 * POLL_MS * 1_000_000
    ahead = SimpleNamespace(time_ns=lambda: time.time_ns() + jump_ns, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr("ringmq.pop.native_desk.time", ahead)
    if is_again:
        stage.restart()
        assert held.hold is not None
        held = poll(stage, held_until_ns=held.hold.until_ns)
    stage.send("T", 1)
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 0"


def test_a_poll_whose_time_is_long_over_is_refused(stage: Stage) -> None:
    """Its read worker has answered it."""
    stage.send("T", 1)
    ask(stage, held_until_ns=time.monotonic_ns() - 600_000_000)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    assert (answer.verdict.type, answer.code) == (lib.RMQ_VERDICT_SEND, 210)


@pytest.mark.parametrize("odd", [False, True])
def test_another_process_goes_on_with_a_poll(stage: Stage, odd: bool) -> None:
    """The read worker asks it again, and says until when. The time that the client has named may be unknown."""
    first = poll(stage, bornTime=0)
    stage.restart()
    assert first.hold is not None
    again = poll(stage, bornTime=0, odd=odd, held_until_ns=first.hold.until_ns)
    assert again.hold is not None and again.hold.until_ns == first.hold.until_ns
    stage.send("T", 1)
    stage.turn()
    assert offsets(answered(stage, again)) == "0 0 0"


@pytest.mark.parametrize("what", ["topic", "group", "stopped"])
def test_a_poll_that_cannot_be_served_any_more_is_refused(stage: Stage, what: str) -> None:
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
    for each in held:
        answer = answered(stage, each)
        assert answer.verdict.type == lib.RMQ_VERDICT_REDO
        assert each.hold is not None
        ask(stage, held_until_ns=each.hold.until_ns)
    stage.turn()
    codes = [answer.code for answer in (stage.verdict(), stage.verdict()) if answer]
    assert codes == [{"topic": 17, "group": 26, "stopped": 1}[what]] * 2


def test_a_missing_window_is_asked_for_by_one_poll(stage: Stage) -> None:
    held = [poll(stage) for _ in range(3)]
    stage.desk.native.struct.go_on_ms = 1 << 62  # the next poll tries it in 10 ms, if the first is not back by then
    stage.topic("%RETRY%G_T")
    stage.send("%RETRY%G_T", 2)
    stage.desk.look_for_retries()
    stage.turn()
    assert answered(stage, held[0]).verdict.type == lib.RMQ_VERDICT_REDO
    assert stage.verdict() is None and held[0].hold is not None
    ask(stage, maxMsgNums=1, held_until_ns=held[0].hold.until_ns)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.fields["msgOffsetInfo"] == "1 0 0"
    assert offsets(answered(stage, held[1])) == "1 0 1"


def test_a_poll_of_a_topic_that_is_made_anew_is_asked_again(stage: Stage) -> None:
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
    assert offsets(answered(stage, again)) == "0 0 0"


def test_a_topic_of_retries_that_is_made_anew_wakes_polls(stage: Stage) -> None:
    stage.topic("%RETRY%G_T")
    assert stage.pop().code == 210
    held = [poll(stage), poll(stage)]
    topic_id = stage.plane.topic_find("%RETRY%G_T")
    assert topic_id is not None
    lib.rmq_topic_set(stage.kit.plane, topic_id, 0)
    stage.topic("%RETRY%G_T")
    assert stage.pop().code == 210, "its window is there"
    stage.desk.look_for_retries()
    stage.turn()
    assert stage.verdict() is None
    stage.send("%RETRY%G_T", 1)
    stage.turn()
    assert offsets(answered(stage, held[0])) == "1 0 0"


def test_no_arrival_is_wanted_by_a_worker_without_polls(stage: Stage) -> None:
    port = stage.kit.header.ports.port[stage.plane.port_of(ROLE)]
    flags = flags_of(stage)
    topic_id = stage.plane.topic_find("T")
    assert topic_id is not None
    slots = [stage.kit.queue_slot(topic_id, queue_id) for queue_id in range(3)]
    for turn in (stage.turn, lambda: reason_of(stage, 1)):  # in Python, and in C alone
        held = poll(stage, queueId=1, turn=turn)
        assert [flags[slot] for slot in slots] == [0, 1, 0]
        assert port.awaits == 1, "dispatch does not nap"
        stage.send("T", 1, 1)
        stage.turn()
        answered(stage, held)
        assert port.awaits == 0
    stage.send("T", 1, 1)
    stage.turn()
    assert [flags[slot] for slot in slots] == [0, 0, 0], "an arrival that no poll waits for is the last one"
    assert stage.pop(queueId=1).code == 0
    poll(stage)
    stage.restart()
    assert [flags[slot] for slot in slots] == [0, 0, 0], "the wishes of a dead process"
    poll(stage)
    stage.desk.close(rests=True)
    stage.desk.free()
    assert [flags[slot] for slot in slots] == [0, 0, 0] and port.awaits == 0


def test_a_message_is_given_while_python_sleeps(stage: Stage) -> None:
    held = poll(stage)
    asks = stage.desk.serving.asks
    assert while_it_sleeps(stage, lambda: stage.send("T", 1)) == lib.RMQ_SERVING_DUE
    assert offsets(answered(stage, held)) == "0 0 0"
    assert stage.desk.serving.asks > asks, "the time of rest begins anew"
