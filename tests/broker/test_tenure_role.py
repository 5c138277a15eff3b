"""The role in control: what it shows to its group, and the epoch of a master before a slave reports to it."""

import json
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole
from ringmq.broker.config.relations import changed
from ringmq.broker.outbound_calls import Outcome
from ringmq.broker.replication import tenure_role
from ringmq.broker.replication.tenure_role import TenureRole
from ringmq.broker.replication.view import FREE, TRANSFER
from ringmq.ha.control_messages import AcceptedNews, Master, Verdict, command_of
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Peer, Step, StepDone, StepFailed
from ringmq.ha.tenure_messages import (
    PROMISE,
    RELEASE,
    SHOW,
    Group,
    Question,
    Showing,
    answer_body,
    answer_of,
    question_body,
)
from ringmq.ipc.audit import Actor
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.role_bodies import DEMOTE, LOOK, PLAN, PROMOTE, RoleState
from ringmq.store.tenure_file import (
    Addresses,
    EpochStart,
    Found,
    Policy,
    Promise,
    TenureRecord,
    UnsyncedTenureError,
    read_tenure,
)
from tests.broker.fakes import START_MS, Harness, make_harness

EPOCH = 3 << 16 | 2
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
MASTER = Addresses("10.0.0.2:10911", "10.0.0.2:10912")
NEWS = AcceptedNews(7, MASTER.ha, MASTER.broker)
GROUP = Group("GoldCluster", "wire-a")
OTHERS = Group("GoldCluster", "wire-b")
PEER = Peer(MASTER, 2, Tenure(TenureState.MASTER, EPOCH), Position(EPOCH, 8192))
SHOWING = Showing(GROUP, PEER, Policy("SYNC_MASTER"), ("10.0.0.3:10911",), (EpochStart(EPOCH, 4096),))


class Calls:
    """Requests to peers, of which the test makes the outcomes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, RemotingCommand]] = []
        self.ended: list[Outcome] = []

    def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        self.asked.append((address, command))

    def keep(self, addresses: Collection[str]) -> None:
        pass

    def outcomes(self) -> list[Outcome]:
        ended, self.ended = self.ended, []
        return ended


class Link:
    """The link to the master: orders for it."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    def follow(self, master: Master) -> None:
        self.orders.append(f"follow {master.broker}".rstrip())

    def unfollow(self) -> None:
        self.orders.append("unfollow")


class Slave:
    """Control of a slave that a master has accepted."""

    def __init__(self, root: Path, found: Found = Found(), **more: str) -> None:  # noqa: B008 - a frozen struct
        self.harness = make_harness({**SLAVE, "storePathRootDir": str(root), **more})
        broker, self.calls = self.harness.broker, Calls()
        self.first = FirstRole.of(broker.config)
        calls: Any = self.calls
        self.peers: Any = Calls()
        view = broker.replication.view
        self.role = TenureRole.of(
            self.first, found, broker.identity, broker.live, view, calls, self.peers, broker.audit
        )
        self.role.link = self.link = Link()
        self.role.begin(START_MS, is_first=True)
        self.root = root

    def accepted(self, news: AcceptedNews = NEWS) -> None:
        self.role.on_accepted(news, START_MS)

    def answered(self, code: int, body: bytes = b"") -> None:
        answer = SimpleNamespace(code=code, body=body)
        error = f"answered {code}" if code else None
        self.calls.ended.append(Outcome(MASTER.broker, error, answer, RequestCode.HA_TENURE))  # type: ignore[arg-type]
        self.role.turn(START_MS)

    def verdicts(self) -> list[Verdict]:
        orders = [command_of(data) for data in self.harness.plane.ha_commands]
        return [order for order in orders if isinstance(order, Verdict)]

    def record(self) -> TenureRecord | None:
        return read_tenure(self.root, self.first.owner).record


def ask(harness: Harness, question: Question) -> RemotingCommand:
    return harness.ask(RequestCode.HA_TENURE, body=question_body(question))


@pytest.mark.parametrize("settings", [{}, SLAVE])
def test_a_broker_shows_itself(settings: dict[str, str]) -> None:
    harness = make_harness(settings)
    harness.broker.role.begin(START_MS, is_first=True)
    shown = answer_of(bytes(ask(harness, Question(SHOW, 0, GROUP, PEER)).body))
    state = TenureState.SLAVE if settings else TenureState.MASTER
    assert (shown.group, shown.peer.tenure) == (GROUP, Tenure(state))
    assert shown.peer.broker_id == len(settings) // 2
    assert shown.peer.addresses.broker == harness.broker.identity.address


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "Input data was truncated"),
        (
            question_body(Question(SHOW, 0, OTHERS, PEER)),
            "this broker is of GoldCluster/wire-a",
        ),
    ],
)
def test_other_questions_are_refused(body: bytes, why: str) -> None:
    answer = make_harness().ask(RequestCode.HA_TENURE, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER and why in str(answer.remark)


def test_the_epoch_of_a_master_is_on_the_disk_before_the_verdict(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.accepted()
    [(address, command)] = slave.calls.asked
    assert (address, command.code) == (MASTER.broker, RequestCode.HA_TENURE)
    assert json.loads(command.body)["operation"] == SHOW
    assert slave.verdicts() == [] and slave.record() is None
    slave.answered(ResponseCode.SUCCESS, answer_body(SHOWING))
    assert slave.verdicts() == [Verdict(7)]
    record = slave.record()
    assert record is not None
    assert (record.is_master, record.epoch, record.policy, record.master) == (False, EPOCH, SHOWING.policy, MASTER)
    assert record.history == SHOWING.history and record.peers == (MASTER.broker, "10.0.0.3:10911")


@pytest.mark.parametrize("is_old", [False, True])
def test_a_role_that_never_changed_needs_no_file(tmp_path: Path, is_old: bool) -> None:
    """Also if the master is older than this request."""
    slave = Slave(tmp_path)
    slave.accepted()
    peer = Peer(MASTER, 0, Tenure(TenureState.MASTER), Position(0, 8192))
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED if is_old else ResponseCode.SUCCESS
    slave.answered(code, answer_body(Showing(GROUP, peer)))
    assert slave.verdicts() == [Verdict(7)] and slave.record() is None


def test_a_slave_registers_again_with_the_epoch_that_it_has_noted(tmp_path: Path) -> None:
    """A demoted master has the brokerId that the promoted broker has left: it follows from the epoch."""
    slave = Slave(tmp_path)
    modes = Modes(slave.role)
    for news in (NEWS, AGAIN):
        slave.accepted(news)
        slave.answered(ResponseCode.SUCCESS, answer_body(SHOWING))
    assert slave.verdicts() == [Verdict(7), Verdict(8)]
    assert modes.does() == [f"register {EPOCH} False"], "once"


AGAIN = AcceptedNews(8, MASTER.ha, MASTER.broker)
NEWER = EPOCH + (1 << 16)
SHOWING_NEWER = Showing(GROUP, Peer(MASTER, 2, Tenure(TenureState.MASTER, NEWER), Position(NEWER, 8192)))


def test_the_answer_to_an_earlier_attempt_is_dropped(tmp_path: Path) -> None:
    """The master was demoted and promoted again between the two."""
    slave = Slave(tmp_path)
    slave.accepted()
    slave.accepted(AGAIN)
    slave.answered(ResponseCode.SUCCESS, answer_body(SHOWING))
    assert slave.verdicts() == [] and slave.record() is None
    slave.answered(ResponseCode.SUCCESS, answer_body(SHOWING_NEWER))
    assert slave.verdicts() == [Verdict(8)]
    record = slave.record()
    assert record is not None and record.epoch == NEWER


def test_an_earlier_answer_that_has_waited_lets_no_later_attempt(tmp_path: Path) -> None:
    slave = Slave(tmp_path, Found(TenureRecord(False, peers=(MASTER.broker,))), **NAMED)
    slave.role.take_order(PLAN, OPERATOR, (), START_MS, accepts=False)
    slave.accepted()
    slave.answered(ResponseCode.SUCCESS, answer_body(SHOWING))
    slave.accepted(AGAIN)
    slave.role.turn(START_MS + 1000)
    assert slave.role.state().is_done and slave.verdicts() == []
    slave.answered(ResponseCode.SUCCESS, answer_body(SHOWING_NEWER))
    assert slave.verdicts() == [Verdict(8)]
    record = slave.record()
    assert record is not None and record.epoch == NEWER


def test_a_stock_master_is_followed_without_a_question(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.accepted(AcceptedNews(7, MASTER.ha, "", stock=True))
    assert slave.verdicts() == [Verdict(7)] and not slave.calls.asked


@pytest.mark.parametrize(
    ("showing", "why"),
    [
        (SHOWING, f"has epoch {EPOCH}, this broker knows epoch {EPOCH + 1}"),
        (Showing(OTHERS, PEER), "it is of GoldCluster/wire-b"),
        (Showing(GROUP, Peer(MASTER, 2, Tenure(TenureState.YIELDING, EPOCH), Position(0, 0))), "it is no master"),
    ],
)
def test_other_masters_are_not_followed(tmp_path: Path, showing: Showing, why: str) -> None:
    known = TenureRecord(False, 5, promises=(Promise(EPOCH + 1, "10.0.0.3:10911"),))
    slave = Slave(tmp_path, Found(known))
    slave.accepted()
    slave.answered(ResponseCode.SUCCESS, answer_body(showing))
    [verdict] = slave.verdicts()
    assert why in verdict.why_not


@pytest.mark.parametrize(("code", "body"), [(ResponseCode.NO_PERMISSION, b""), (ResponseCode.SUCCESS, b"{}")])
def test_a_master_that_shows_nothing_is_not_followed(tmp_path: Path, code: int, body: bytes) -> None:
    slave = Slave(tmp_path)
    slave.accepted()
    slave.answered(code, body)
    [verdict] = slave.verdicts()
    assert "it does not show its epoch" in verdict.why_not


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), UnsyncedTenureError(5, "Input/output error")]
)
def test_without_a_file_the_slave_does_not_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fails(*_: object) -> None:
        raise error

    slave = Slave(tmp_path)
    monkeypatch.setattr(tenure_role, "write_tenure", fails)
    slave.accepted()
    slave.answered(ResponseCode.SUCCESS, answer_body(SHOWING))
    assert slave.verdicts() == [Verdict(7, "the tenure file cannot be written")]


def test_the_policy_of_a_demoted_master_is_that_of_its_configuration() -> None:
    config = changed(BrokerConfig(), {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"})
    first = FirstRole.of(config)
    as_slave = changed(config, {"brokerRole": "SLAVE", "brokerId": "2"})
    assert first.policy(as_slave) == Policy("SYNC_MASTER", in_sync_replicas=2)


HOST = "10.0.0.2"
NAMED = {"haAllowedNetworks": HOST}
PROMOTED = Peer(MASTER, 2, Tenure(TenureState.SLAVE), Position(0, 0), taking=EPOCH)


def promise(slave: Slave, operation: str = PROMISE, host: str = HOST) -> str:
    question: Any = Question(operation, EPOCH, GROUP, PROMOTED)  # type: ignore[arg-type]
    return slave.role.take_question(question, host, START_MS)


def test_a_promise_is_on_the_disk_before_its_answer_and_given_back(tmp_path: Path) -> None:
    slave = Slave(tmp_path, **NAMED)
    assert promise(slave) == ""
    record = slave.record()
    assert record is not None and record.promises == (Promise(EPOCH, MASTER.broker),)
    assert slave.role.showing().peer.promised == EPOCH
    assert slave.link.orders == ["follow", "unfollow", "follow"]
    assert promise(slave, RELEASE) == ""
    assert slave.role.showing().peer.promised == 0


@pytest.mark.parametrize("is_let", [False, True])
def test_a_slave_of_a_living_master_makes_no_promise(tmp_path: Path, is_let: bool) -> None:
    """Also if ha has the verdict, and the stream has not begun."""
    slave = Slave(tmp_path, **NAMED)
    if is_let:
        slave.accepted(AcceptedNews(7, MASTER.ha, "", stock=True))
    else:
        slave.harness.plane.header.replication.link.state = TRANSFER
    assert promise(slave) == "" and slave.role.showing().peer.promised == 0
    slave.harness.plane.header.replication.link.state = FREE
    slave.role.on_link()
    promise(slave)
    assert slave.role.showing().peer.promised == EPOCH


@pytest.mark.parametrize("networks", ["", "10.0.0.3"])
@pytest.mark.parametrize("operation", [PROMISE, RELEASE])
def test_a_host_that_is_not_named_gets_no_promise(tmp_path: Path, operation: str, networks: str) -> None:
    slave = Slave(tmp_path, haAllowedNetworks=networks)
    assert "haAllowedNetworks does not name 10.0.0.2" in promise(slave, operation)
    assert slave.record() is None


def test_a_slave_asks_each_second_if_its_promise_is_needed(tmp_path: Path) -> None:
    slave = Slave(tmp_path, Found(TenureRecord(False, promises=(Promise(EPOCH, MASTER.broker),))), **NAMED)
    slave.role.turn(START_MS + 999)
    assert not slave.peers.asked
    slave.role.turn(START_MS + 1000)
    assert [address for address, _ in slave.peers.asked] == [MASTER.broker]
    body = answer_body(Showing(GROUP, Peer(Addresses(), 2, Tenure(TenureState.SLAVE), Position(0, 0))))
    answer: Any = SimpleNamespace(code=0, body=body)
    slave.peers.ended.append(Outcome(MASTER.broker, None, answer, RequestCode.HA_TENURE))
    slave.role.turn(START_MS + 1001)
    assert slave.role.showing().peer.promised == 0, "the peer does not try to be promoted any more"


def test_a_newer_master_is_followed(tmp_path: Path) -> None:
    slave = Slave(tmp_path, **NAMED)
    slave.role.take_question(Question(SHOW, 0, GROUP, PEER), "10.9.9.9", START_MS)
    assert slave.link.orders == ["follow"], "not named"
    slave.role.take_question(Question(SHOW, 0, GROUP, PEER), HOST, START_MS)
    assert slave.link.orders == ["follow", f"follow {MASTER.broker}"]


class Modes:
    """Workers and parts of control, whose steps the test ends."""

    def __init__(self, role: TenureRole) -> None:
        self.role = role
        role.modes = self
        self.said: list[str] = []
        self.ended: list[StepDone | StepFailed] = []
        role.on_register = lambda record: self.said.append(f"register {record.epoch} {record.is_master}")

    def publish(self, tenure: Tenure) -> None:
        self.said.append(f"{tenure.state.name} {tenure.epoch}")

    def order(self, step: Step) -> None:
        self.said.append(step.name)

    def outcomes(self) -> list[StepDone | StepFailed]:
        ended, self.ended = self.ended, []
        return ended

    def does(self, *steps: Step, now_ms: int = START_MS) -> list[str]:
        """The orders behind these steps."""
        for step in steps:
            self.ended.append(StepDone(step, 8192))
            self.role.turn(now_ms)
        said, self.said = self.said, []
        return said


OPERATOR = Actor("127.0.0.1:5000", "HA_ROLE")
OWN_EPOCH = 1 << 16 | 1


def promoted(slave: Slave, modes: Modes) -> list[str]:
    """Promote a slave that knows no peers."""
    slave.role.take_order(PROMOTE, OPERATOR, (), START_MS, accepts=True)
    slave.role.turn(START_MS)
    slave.role.turn(START_MS)
    return modes.does(Step.STAND, Step.WRITE, Step.SERVE)


def test_a_promotion_and_a_demotion_are_carried_out(tmp_path: Path) -> None:
    slave = Slave(tmp_path, **NAMED)
    modes = Modes(slave.role)
    said = promoted(slave, modes)
    assert said == [
        f"TAKING {OWN_EPOCH}", "STAND", "WRITE", "SERVE", f"MASTER {OWN_EPOCH}", f"register {OWN_EPOCH} True",
    ]  # fmt: skip
    assert slave.link.orders == ["follow", "unfollow"]
    record, state = slave.record(), slave.role.state()
    assert record is not None and record.is_master and record.epoch == OWN_EPOCH
    assert (state.tenure, state.epoch, state.is_done, state.failure) == ("master", OWN_EPOCH, True, "")
    slave.role.take_order(DEMOTE, OPERATOR, (), START_MS, accepts=False)
    assert modes.does(Step.STAND, Step.CLOSE, Step.RECEIVE) == [
        f"YIELDING {OWN_EPOCH}", "STAND", "CLOSE", "RECEIVE", f"SLAVE {OWN_EPOCH}", f"register {OWN_EPOCH} False",
    ]  # fmt: skip
    record = slave.record()
    assert record is not None and not record.is_master
    lines = [change.fields() for change in slave.harness.broker.audit.changes]
    assert [(line["peer"], line["before"], line["after"]) for line in lines] == [
        (OPERATOR.peer, {"role": "slave", "epoch": 0}, {"role": "master", "epoch": OWN_EPOCH}),
        (OPERATOR.peer, {"role": "master"}, {"role": "slave"}),
    ]


def test_a_master_makes_way_for_a_higher_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slave = Slave(tmp_path, **NAMED)
    modes = Modes(slave.role)
    promoted(slave, modes)
    for host in ("10.9.9.9", HOST, HOST):
        slave.role.take_question(Question(SHOW, 0, GROUP, PEER), host, START_MS)
    assert caplog.text.count(f"broker {MASTER.broker} has epoch {EPOCH}, this one {OWN_EPOCH}") == 1
    assert modes.does(Step.STAND, Step.CLOSE, Step.RECEIVE)[-2:] == [f"SLAVE {EPOCH}", f"register {EPOCH} False"]
    assert slave.link.orders[-1] == f"follow {MASTER.broker}"


@pytest.mark.parametrize("networks", ["", HOST])
def test_without_a_list_an_old_master_learns_nothing(tmp_path: Path, networks: str) -> None:
    slave = Slave(tmp_path, haAllowedNetworks=networks)
    slave.role.take_order(PROMOTE, OPERATOR, (), START_MS, accepts=False)
    slave.role.turn(START_MS)
    assert ("haAllowedNetworks is empty" in slave.role.state().failure) is not bool(networks)


def test_a_promotion_that_fails_gives_promises_back(tmp_path: Path) -> None:
    known = TenureRecord(False, master=MASTER, peers=(MASTER.broker,))
    slave = Slave(tmp_path, Found(known), **NAMED)
    modes = Modes(slave.role)
    slave.role.take_order(PROMOTE, OPERATOR, (), START_MS, accepts=True)
    for promised in (0, OWN_EPOCH):
        peer = Peer(MASTER, 0, Tenure(TenureState.SLAVE), Position(0, 0), promised=promised)
        answer: Any = SimpleNamespace(code=0, body=answer_body(Showing(GROUP, peer)))
        slave.peers.ended.append(Outcome(MASTER.broker, None, answer, RequestCode.HA_TENURE))
        slave.role.turn(START_MS)
    modes.ended.append(StepFailed(Step.STAND, "worker write has died"))
    slave.role.turn(START_MS)
    address, command = slave.peers.asked[-1]
    assert (address, json.loads(command.body)["operation"]) == (MASTER.broker, RELEASE)
    assert modes.does(Step.RECEIVE)[-2:] == ["SLAVE 0", "register 0 False"]
    assert "worker write has died" in slave.role.state().failure


def restarted(tmp_path: Path, **more: str) -> tuple[Harness, Modes]:
    """A master of a group that starts after a death."""
    harness = make_harness({"brokerRole": "SYNC_MASTER", **NAMED, "storePathRootDir": str(tmp_path), **more})
    harness.plane.watermarks.tenure = Tenure(TenureState.TAKING, OWN_EPOCH).word
    broker = harness.broker
    calls, peer_calls = (cast(Any, Calls()) for _ in range(2))
    record = TenureRecord(True, OWN_EPOCH, Policy("SYNC_MASTER"), peers=(MASTER.broker,))
    first = FirstRole.of(broker.config)
    broker.role = TenureRole.of(
        first, Found(record), broker.identity, broker.live, broker.replication.view, calls, peer_calls, broker.audit
    )
    modes = Modes(broker.role)
    broker.role.begin(START_MS, is_first=True)
    return harness, modes


def test_a_start_as_master_registers_once_its_peers_have_answered(tmp_path: Path) -> None:
    harness, modes = restarted(tmp_path)
    role = harness.broker.role
    assert not role.registers
    peer = Peer(MASTER, 1, Tenure(TenureState.SLAVE, OWN_EPOCH), Position(OWN_EPOCH, 4096))
    role.take_question(Question(SHOW, 0, GROUP, peer), HOST, START_MS)  # no answer
    body: Any = SimpleNamespace(code=0, body=answer_body(Showing(GROUP, peer)))
    role.rounds.calls.ended.append(Outcome(MASTER.broker, None, body, RequestCode.HA_TENURE))  # type: ignore[attr-defined]
    role.turn(START_MS)
    assert modes.does(Step.STAND, Step.WRITE, Step.SERVE)[-2:] == [f"MASTER {OWN_EPOCH}", f"register {OWN_EPOCH} True"]
    assert role.registers and role.note() == ""


def test_a_start_as_master_follows_a_promoted_peer(tmp_path: Path) -> None:
    harness, modes = restarted(tmp_path)
    harness.broker.role.take_question(Question(SHOW, 0, GROUP, PEER), HOST, START_MS)
    assert modes.does(Step.STAND, Step.CLOSE, Step.RECEIVE)[-2:] == [f"SLAVE {EPOCH}", f"register {EPOCH} False"]
    assert harness.broker.role.registers


@pytest.mark.parametrize("alone", ["", "serve", "hold"])
def test_a_start_alone_serves_or_waits_by_the_property(tmp_path: Path, alone: str) -> None:
    harness, modes = restarted(tmp_path, haStartAlone=alone)
    role = harness.broker.role
    role.turn(START_MS + 1000)
    if alone == "serve":
        assert modes.does()[-1] == "STAND" and role.note() == ""
        return
    assert not role.registers and modes.does() == []
    assert f"a start as SYNC_MASTER waits for its peers, and {MASTER.broker} have not answered" in role.note()


def ordered(harness: Harness, choice: str, **more: str) -> RoleState:
    answer = harness.ask(RequestCode.HA_ROLE, {"choice": choice, **more})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return RoleState.decode(answer.body)


def test_an_order_is_answered_at_once(tmp_path: Path) -> None:
    harness = make_harness({**SLAVE, **NAMED, "storePathRootDir": str(tmp_path)})
    harness.broker.role.begin(START_MS, is_first=True)
    state = ordered(harness, PROMOTE, acceptsLoss="true")
    assert (state.order, state.is_done, state.tenure) == (1, False, "slave")
    answer = harness.ask(RequestCode.HA_ROLE, {"choice": DEMOTE})
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_BUSY,
        "order 1 goes on: a promotion asks the peers for their logs and epochs",
    )
    assert ordered(harness, LOOK) == state


def test_an_order_that_is_not_known_is_refused() -> None:
    answer = make_harness().ask(RequestCode.HA_ROLE, {"choice": "exchange"})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == "choice = 'exchange' is not known, accepted: promote, demote, plan, look"


@pytest.mark.parametrize("fault", ["store_fault", "dispatch_fault"])
def test_a_store_with_a_fault_is_not_promoted(fault: str) -> None:
    harness = make_harness({**SLAVE, **NAMED})
    harness.broker.role.begin(START_MS, is_first=True)
    setattr(harness.plane.watermarks, fault, lib.RMQ_FAULT_FSYNC)
    state = ordered(harness, PROMOTE)
    assert state.is_done and "fsync of the commit log failed" in state.failure


def test_a_broker_stops_when_its_role_is_settled(tmp_path: Path) -> None:
    slave = Slave(tmp_path, **NAMED)
    modes = Modes(slave.role)
    promoted(slave, modes)
    slave.role.take_order(DEMOTE, OPERATOR, (), START_MS, accepts=False)
    for _ in range(2):
        slave.role.stop(START_MS)
        assert not slave.role.may_stop
    modes.does(Step.STAND, Step.CLOSE, Step.RECEIVE)
    assert slave.role.may_stop
    slave.role.stop(START_MS)
