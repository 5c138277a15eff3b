"""Control asks workers that hold messages before it sets offsets aside, and tells them of deletions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.control_wiring import saved_by
from ringmq.broker.handlers.table import CHANGES_TABLES
from ringmq.broker.holders import TIMEOUT_NS, Asking, Holders
from ringmq.broker.requests.holder_asks import NAMES_MAX, QUEUES_MAX, DeletionAsk, LeaveAsk, ResetAsk
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.persistence import Persistence
from ringmq.broker.tables.request_modes import FILE
from ringmq.broker.worker_asks import Question
from ringmq.ipc.audit import Kind
from ringmq.ipc.timed_asks import GivenUp, Then
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.json_body import write_body
from ringmq.store.config_files import load_config
from tests.broker.fakes import START_MS, Harness, make_harness

RESET, DELETED, LEAVE = lib.RMQ_INBOX_RESET, lib.RMQ_INBOX_DELETED, lib.RMQ_INBOX_LEAVE


class ScriptedAsks:
    """One worker, whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self._then: list[Then] = []

    def ask_all(self, kind: int, payload: bytes, now_ns: int, is_concerned: Callable[[str], bool]) -> Question:
        question = Question()
        if is_concerned("pop"):
            self.asked.append((kind, payload))
            self._then.append(question.add("pop"))
        return question

    def end(self, outcome: bytes | GivenUp = b"") -> None:
        self._then.pop(0)(outcome)


class Stage:
    """The asks of one request, by a clock of the test."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.asks, self.holders = ScriptedAsks(), Holders(lambda: self.now_ns)
        self.holders.asks = lambda: self.asks
        self.asking: Asking = self.holders.begin()

    def step(self, steps: Steps[str]) -> str | None:
        """One step. The result, None while it waits."""
        try:
            next(steps)
        except StopIteration as end:
            return str(end.value)
        assert self.asking.is_waiting()
        return None

    def resets(self) -> list[ResetAsk]:
        return [ResetAsk.decode(payload) for kind, payload in self.asks.asked if kind == RESET]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_reset_waits_for_the_worker(stage: Stage) -> None:
    steps = stage.asking.reset("G", "T", {0: 5, 3: 1 << 40})
    assert stage.step(steps) is None
    (ask,) = stage.resets()
    assert (ask.group, ask.topic, ask.offsets) == ("G", "T", {0: 5, 3: 1 << 40})
    assert stage.now_ns < ask.until_ns < stage.now_ns + TIMEOUT_NS, "control waits longer than the worker may take"
    stage.asks.end()
    assert not stage.asking.is_waiting() and stage.step(steps) == "" and stage.asking.has_asked


def test_a_refusal_says_what_has_changed(stage: Stage) -> None:
    steps = stage.asking.reset("G", "T", {0: 5})
    stage.step(steps)
    stage.asks.end(b"no id")
    assert stage.step(steps) == "worker pop: no id; nothing has changed"


def test_many_queues_are_reset_some_at_a_time(stage: Stage) -> None:
    steps = stage.asking.reset("G", "T", dict.fromkeys(range(QUEUES_MAX + 1), 7))
    stage.step(steps)
    stage.asks.end()
    assert stage.step(steps) is None
    assert [len(ask.offsets) for ask in stage.resets()] == [QUEUES_MAX, 1]
    stage.asks.end(b"no id")
    assert stage.step(steps) == f"worker pop: no id; {QUEUES_MAX} queues are reset, no other"
    assert stage.asking.done == QUEUES_MAX


def test_of_some_queues_a_hanging_worker_says_nothing(stage: Stage) -> None:
    steps = stage.asking.reset("G", "T", dict.fromkeys(range(QUEUES_MAX + 1), 7))
    stage.step(steps)
    stage.asks.end()
    stage.step(steps)
    stage.now_ns += TIMEOUT_NS
    assert stage.step(steps) == f"no answer within 4000 ms; {QUEUES_MAX} queues are reset, others may be"


def test_a_worker_that_dies_is_asked_again(stage: Stage) -> None:
    steps = stage.asking.reset("G", "T", {0: 5})
    stage.step(steps)
    stage.now_ns += TIMEOUT_NS - 2
    stage.asks.end(GivenUp.LOST)
    assert stage.step(steps) is None
    first, again = stage.resets()
    assert first == again, "no later time"
    stage.now_ns += 2
    stage.asks.end(GivenUp.LOST)
    assert stage.step(steps) == f"worker pop: {GivenUp.LOST.value}; queues may be reset"


def test_a_worker_that_hangs(stage: Stage) -> None:
    steps = stage.asking.reset("G", "T", {0: 5})
    stage.step(steps)
    stage.now_ns += TIMEOUT_NS
    assert not stage.asking.is_waiting()
    assert stage.step(steps) == "no answer within 4000 ms; queues may be reset"


def test_an_ask_that_was_not_put_has_changed_nothing(stage: Stage) -> None:
    steps = stage.asking.reset("G", "T", {0: 5})
    stage.step(steps)
    stage.asks.end(GivenUp.FULL)
    assert stage.step(steps) == f"worker pop: {GivenUp.FULL.value}; nothing has changed"


def test_a_deletion_is_told_in_parts(stage: Stage) -> None:
    steps = stage.asking.deleted(topics=[f"T{number}" for number in range(NAMES_MAX + 1)])
    stage.step(steps)
    stage.asks.end()
    stage.step(steps)
    assert [len(DeletionAsk.decode(payload).topics) for _, payload in stage.asks.asked] == [NAMES_MAX, 1]
    stage.asks.end()
    assert stage.step(steps) == ""


def test_a_worker_that_was_never_used_is_not_asked(stage: Stage) -> None:
    stage.holders.is_concerned = lambda worker: worker != "pop"
    assert stage.step(stage.asking.reset("G", "T", {0: 5})) == ""
    assert stage.asks.asked == [] and not stage.asking.has_asked


# ---- requests ----


class Worker(ScriptedAsks):
    """Answers at once. `on_reset` is called before."""

    def __init__(self, *outcomes: bytes | GivenUp) -> None:
        super().__init__()
        self.outcomes = list(outcomes)
        self.on_ask: Callable[[int], None] = lambda kind: None

    def ask_all(self, kind: int, payload: bytes, now_ns: int, is_concerned: Callable[[str], bool]) -> Question:
        question = super().ask_all(kind, payload, now_ns, is_concerned)
        self.on_ask(kind)
        self.end(self.outcomes.pop(0) if self.outcomes else b"")
        return question


def harness_with(worker: Worker) -> Harness:
    harness = make_harness()
    harness.broker.holders.asks = lambda: worker
    harness.make_topic("T")
    harness.broker.groups.put(SubscriptionGroupConfig("G"), START_MS)
    harness.plane.set_bounds("T", 0, 0, 9)
    harness.broker.offsets.put("G", "T", 0, 6, START_MS)
    return harness


def reset_to(harness: Harness, offset: int) -> tuple[int, str | None]:
    fields = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": str(offset)}
    answer = harness.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    return answer.code, answer.remark


def numbers(harness: Harness) -> tuple[int, int]:
    """Of the group and queue 0 in the plane."""
    plane = harness.plane
    group_id, topic_id = plane.group_find("G"), plane.topic_find("T")
    assert group_id is not None
    assert topic_id is not None
    slot = plane.queue_find(topic_id, 0)
    assert slot is not None
    return group_id, slot


def report(harness: Harness, *offsets: int) -> None:
    """Offsets of queue 0 that wait in the ring of commits."""
    group_id, slot = numbers(harness)
    harness.plane.commits += [(group_id, slot, offset) for offset in offsets]


def pop(harness: Harness, count: int) -> None:
    """The group gets so many messages of queue 0."""
    key = numbers(harness)
    harness.plane.popped_table[key] = harness.plane.popped(*key) + count


def test_a_refused_reset_changes_nothing() -> None:
    harness = harness_with(Worker(b"no id"))
    assert reset_to(harness, 2) == (2, "worker pop: no id; nothing has changed")
    assert harness.broker.offsets.get("G", "T", 0) == 6 and not harness.broker.offsets.has_reset("G", "T", 0)


def test_the_queues_that_are_reset_before_a_refusal_are_noted() -> None:
    """The worker has moved them: the file has their offsets, and the audit line names them."""
    harness = harness_with(Worker(b"", b"no id"))
    harness.make_topic("T", queues=QUEUES_MAX + 1)
    broker = harness.broker
    broker.audit.changes.clear()
    fields = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "-1", "offset": "-1"}
    answer = harness.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert (answer.code, answer.remark) == (2, f"worker pop: no id; {QUEUES_MAX} queues are reset, no other")
    assert [broker.offsets.has_reset("G", "T", number) for number in (0, QUEUES_MAX - 1, QUEUES_MAX)] == [1, 1, 0]
    assert broker.offsets.erasures_to_save == 1
    (change,) = (change for change in broker.audit.changes if change.kind is Kind.OFFSETS)
    before: Any = change.before
    after: Any = change.after
    assert (before["0"], after["0"], after["more"]) == (6, 9, QUEUES_MAX - 64)


def test_a_reset_keeps_what_the_worker_has_reported_since() -> None:
    """Another offset in the table would be the word of somebody else, and the worker would begin anew once more."""
    worker = Worker()
    harness = harness_with(worker)
    pop(harness, 6)

    def on_ask(kind: int) -> None:
        pop(harness, 2)
        report(harness, 2, 4)

    worker.on_ask = on_ask
    assert reset_to(harness, 2)[0] == 0
    assert harness.broker.offsets.get("G", "T", 0) == 4
    assert not harness.broker.offsets.has_reset("G", "T", 0), "the group goes on by pops"


def test_a_reset_is_on_disk_before_its_answer(tmp_path: Path) -> None:
    """Messages that consumers hold outlive all processes, and so does their reset."""
    worker = Worker()
    harness = harness_with(worker)
    worker.on_ask = lambda kind: report(harness, 2)
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    persistence.save_tables()
    assert not persistence.tables_dirty
    assert reset_to(harness, 2)[0] == 0 and RequestCode.INVOKE_BROKER_TO_RESET_OFFSET in CHANGES_TABLES
    assert persistence.tables_dirty
    persistence.save_tables()
    assert not persistence.tables_dirty
    assert load_config(tmp_path, "consumerOffset.json")["offsetTable"]["T@G"] == {0: 2}


@pytest.mark.parametrize("has_pulled", [True, False])
def test_a_reset_waits_for_a_pull_or_a_pop(has_pulled: bool) -> None:
    """A pull that comes later would give again what pops have given since, and what is acknowledged."""
    worker = Worker()
    harness = harness_with(worker)
    if has_pulled:
        harness.plane.pulled_table[numbers(harness)] = 6
    worker.on_ask = lambda kind: report(harness, 2)
    assert reset_to(harness, 2)[0] == 0
    offsets = harness.broker.offsets
    assert offsets.has_reset("G", "T", 0) and offsets.get("G", "T", 0) == 2
    pop(harness, 1)
    report(harness, 3)
    offsets.drain(START_MS)
    assert offsets.get("G", "T", 0) == 3 and not offsets.has_reset("G", "T", 0)
    assert offsets.take_reset("G", "T", 0) is None


def test_a_commit_of_a_pull_on_its_way_ends_no_reset() -> None:
    """The group has popped once and pulls now: its members learn of the reset by their next pull."""
    harness = harness_with(Worker())
    pop(harness, 6)
    assert reset_to(harness, 2)[0] == 0
    report(harness, 8)
    offsets = harness.broker.offsets
    offsets.drain(START_MS)
    assert offsets.get("G", "T", 0) == 2 and offsets.take_reset("G", "T", 0) == 2


def test_a_reset_that_a_pop_has_ended_answers_no_commits() -> None:
    harness = harness_with(Worker())
    assert reset_to(harness, 2)[0] == 0
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "5"}
    ignored = harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert ignored.remark == "Offset has been previously reset"
    pop(harness, 1)
    assert harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).remark is None
    assert harness.broker.offsets.get("G", "T", 0) == 5


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"}),
    ],
)
def test_nothing_is_deleted_while_the_worker_does_not_serve(code: int, fields: dict[str, str]) -> None:
    harness = harness_with(Worker(GivenUp.LATE))
    answer = harness.ask(code, fields)
    assert (answer.code, answer.remark) == (2, f"worker pop: {GivenUp.LATE.value}; nothing has changed")
    assert "T" in harness.broker.topics and "G" in harness.broker.groups
    assert harness.broker.offsets.get("G", "T", 0) == 6


def test_a_deleted_topic_is_told_with_its_topics_of_retries() -> None:
    worker = Worker()
    harness = harness_with(worker)
    harness.make_topic("%RETRY%G_T")
    live: list[bool] = []
    worker.on_ask = lambda kind: live.append("T" in harness.broker.topics)
    assert harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    assert [kind for kind, _ in worker.asked] == [RESET, DELETED] and live == [True, False]
    assert ResetAsk.decode(worker.asked[0][1]).offsets == {}
    assert DeletionAsk.decode(worker.asked[1][1]).topics == ["T", "%RETRY%G_T"]


def test_reports_of_a_deleted_group_do_not_outlive_it() -> None:
    worker = Worker()
    harness = harness_with(worker)
    worker.on_ask = lambda kind: report(harness, 7) if kind == DELETED else None
    fields = {"groupName": "G", "cleanOffset": "true"}
    assert harness.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields).code == 0
    assert DeletionAsk.decode(worker.asked[1][1]).groups == ["G"]
    harness.broker.offsets.drain(START_MS)
    assert harness.broker.offsets.get("G", "T", 0) == -1


def test_a_deletion_of_which_a_worker_has_not_heard_says_so() -> None:
    harness = harness_with(Worker(b"", GivenUp.LATE))
    answer = harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert (answer.code, answer.remark) == (2, f"topic T is deleted, but worker pop: {GivenUp.LATE.value}")
    assert "T" not in harness.broker.topics


# ---- modes ----


def set_mode(harness: Harness, mode: str) -> tuple[int, str | None]:
    body = {"consumerGroup": "G", "mode": mode, "popShareQueueNum": 0, "topic": "T"}
    answer = harness.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=write_body(body))
    return answer.code, answer.remark


def mode_of(harness: Harness) -> str:
    mode = harness.broker.modes.get("T", "G")
    assert mode is not None
    return mode.mode


def test_a_group_that_leaves_pop_waits_for_the_worker(stage: Stage) -> None:
    steps = stage.asking.leave("G", "T")
    assert stage.step(steps) is None
    ((kind, payload),) = stage.asks.asked
    ask = LeaveAsk.decode(payload)
    assert kind == LEAVE and (ask.group, ask.topic) == ("G", "T")
    assert stage.now_ns < ask.until_ns < stage.now_ns + TIMEOUT_NS, "control waits longer than the worker may take"
    stage.asks.end()
    assert stage.step(steps) == ""


def test_a_worker_that_hangs_leaves_the_mode(stage: Stage) -> None:
    steps = stage.asking.leave("G", "T")
    stage.step(steps)
    stage.now_ns += TIMEOUT_NS
    assert stage.step(steps) == "no answer within 4000 ms; the mode has not changed"


def test_a_refused_switch_leaves_the_mode() -> None:
    worker = Worker(b"the disk is full")
    harness = harness_with(worker)
    assert set_mode(harness, "POP")[0] == 0 and worker.asked == [], "a group that begins with POP holds nothing"
    assert set_mode(harness, "PULL") == (2, "worker pop: the disk is full; the mode has not changed")
    assert mode_of(harness) == "POP"


def test_mode_and_offsets_are_on_disk_before_the_answer(tmp_path: Path) -> None:
    """A member that pulls finds the offsets of the switch, also behind a death of all processes."""
    worker = Worker()
    harness = harness_with(worker)
    worker.on_ask = lambda kind: report(harness, 8)
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    set_mode(harness, "POP")
    persistence.save_tables()
    assert set_mode(harness, "PULL")[0] == 0 and RequestCode.SET_MESSAGE_REQUEST_MODE in CHANGES_TABLES
    assert harness.broker.offsets.get("G", "T", 0) == 8
    persistence.save_tables()
    assert load_config(tmp_path, "consumerOffset.json")["offsetTable"]["T@G"] == {0: 8}
    assert load_config(tmp_path, FILE)["messageRequestModeMap"]["T"]["G"]["mode"] == "PULL"


def test_a_topic_that_is_deleted_meanwhile_gets_no_mode() -> None:
    worker = Worker()
    harness = harness_with(worker)
    set_mode(harness, "POP")
    worker.on_ask = lambda kind: harness.broker.topics.delete("T", START_MS) and None
    assert set_mode(harness, "PULL") == (17, "topic[T] not exist")
    assert mode_of(harness) == "POP"
