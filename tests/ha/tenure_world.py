"""Simulated brokers around cores of the role: disk, network, workers, stream. Times are of `simulated_world`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ringmq.ha import tenure_records
from ringmq.ha.tenure_core import TenureCore
from ringmq.ha.tenure_events import (
    Accepted,
    AnswerPromise,
    Ask,
    Began,
    Effect,
    Ended,
    Event,
    FileFailed,
    FileWritten,
    Follow,
    MayStop,
    Order,
    Peer,
    PeerSeen,
    Plan,
    PromiseAsked,
    Publish,
    Refuse,
    Register,
    Reject,
    Release,
    Released,
    RoundEnded,
    Step,
    StepDone,
    StepFailed,
    Stream,
    Tick,
    Unfollow,
    WriteFile,
)
from ringmq.ha.tenure_memory import Own
from ringmq.ha.tenure_rules import copies
from ringmq.ha.tenure_states import State
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.store.tenure_file import Addresses, Found, Policy, TenureRecord
from tests.ha.simulated_world import World

BEAT_MS = 20
SILENT_MS = 300
ROUND_MS = 200
REGISTER_MS = 1000


@dataclass(slots=True)
class Disk:
    """The file: as processes see it, and as a power cut leaves it. The log keeps `flushed` records over a power cut.

    has_failed: a sync has failed, and a later one of the same file proves nothing.
    """

    seen: TenureRecord | None = None
    synced: TenureRecord | None = None
    log: list[int] = field(default_factory=list)
    flushed: int = 0
    has_failed: bool = False


@dataclass(slots=True)
class Ledger:
    """Claims of the group, and those that turned out to be false."""

    owners: dict[int, int] = field(default_factory=dict)
    """Epoch -> the broker that was its master."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Index of the log -> record."""
    acknowledged_ms: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    may_lose: bool = False

    def count(self, what: str) -> None:
        """Count an event, for the test that the seeds reach it."""
        self.counts[what] = self.counts.get(what, 0) + 1


@dataclass(slots=True)
class Network:
    """Messages between brokers, and to the name server (number -1). A cut direction loses them."""

    world: World
    cuts: set[tuple[int, int]] = field(default_factory=set)
    late: set[tuple[int, int]] = field(default_factory=set)

    def send(self, source: int, target: int, arrive: Callable[..., None], *content: Any) -> None:
        """Deliver later, or never."""
        way = source, target
        if way not in self.cuts:
            delay_ms = self.world.random.uniform(0.1, 250 if way in self.late else 2)
            self.world.after_ms(delay_ms, self._arrive, way, arrive, content)

    def _arrive(self, way: tuple[int, int], arrive: Callable[..., None], content: tuple[Any, ...]) -> None:
        if way not in self.cuts:
            arrive(*content)


@dataclass(slots=True)
class Names:
    """The name server: the master's registration, which an older epoch does not replace."""

    master: int | None = None
    epoch: int = -1

    def register(self, number: int, is_master: bool, epoch: int) -> None:
        """A broker has registered itself."""
        if is_master and epoch >= self.epoch:
            self.master, self.epoch = number, epoch
        elif not is_master and self.master == number:
            self.master, self.epoch = None, -1


@dataclass(slots=True)
class Link:
    """A slave's stream, at either end. `heard_ms`: the last message of the other end. `end`: reported by the slave."""

    number: int
    other: int
    heard_ms: int
    end: int = 0


class SimulatedBroker:
    """One broker. A death forgets everything but disk, word and configuration."""

    def __init__(self, own: Own, world: World, network: Network, names: Names, ledger: Ledger) -> None:
        self.own, self.world, self.network, self.names, self.ledger = own, world, network, names, ledger
        self.number = own.broker_id
        self.group: list[SimulatedBroker] = []
        self.disk = Disk()
        self.word: Tenure | None = None
        self.alive = False
        self.life = 0
        self.paused_until_ms = 0
        self.fault_rate = 0.0
        self.next_failure: FileFailed | None = None
        """The end of the next write. If its sync says EIO, a power cut finds the new record on the disk."""
        self.last_answer = ""

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process of the broker, with a new plane."""
        if not self.alive:
            self.word = None
            self.begin()

    def begin(self) -> None:
        """A new control. After a death of the whole broker the word is None."""
        self.alive, self.life = True, self.life + 1
        if not self.disk.has_failed:
            self.disk.synced = self.disk.seen  # a start syncs what it reads
        self.core = TenureCore.of(self.own, Found(self.disk.seen, is_sure=not self.disk.has_failed))
        self.appended_from = len(self.disk.log)
        self.to_slaves: dict[int, Link] = {}
        self.to_master: Link | None = None
        self.waiting: Accepted | None = None
        self.waiting_link: Link | None = None
        self.follows, self.target = False, ""
        self.questions: dict[tuple[str, int], tuple[int, int]] = {}
        self.round: tuple[int, set[int], set[int]] | None = None
        self.step_number = self.link_number = self.asked_ms = 0
        self.writing: TenureRecord | None = None
        self.registration: Register | None = None
        self.step(Began(self.word))
        self.after(0, self.beat)

    def die(self, *, has_power_cut: bool) -> None:
        """kill -9 of everything, or the loss of what is not synced."""
        random = self.world.random
        if not self.alive:
            return
        self.alive = False
        disk = self.disk
        if self.writing is not None and random.random() < 0.7:
            disk.seen = self.writing  # it was renamed, and not synced
        if has_power_cut:
            disk.seen = disk.synced = random.choice((disk.seen, disk.synced))
            disk.has_failed = False
            del disk.log[random.randint(min(disk.flushed, len(disk.log)), len(disk.log)) :]
            disk.flushed = len(disk.log)

    def kill_control(self) -> None:
        """Control dies alone: word, workers and files stay."""
        if self.alive and self.core.state is not State.ENDED:
            if self.writing is not None and self.world.random.random() < 0.7:
                self.disk.seen = self.writing
            self.begin()

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        """Act later, in this life. A stopped process acts when it goes on."""
        self.world.after_ms(delay_ms, self._act, self.life, action, arguments)

    def _act(self, life: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.alive or life != self.life:
            return
        if self.world.now_ms < self.paused_until_ms:
            self.world.after_ms(self.paused_until_ms - self.world.now_ms + 1, self._act, life, action, arguments)
            return
        action(*arguments)

    def tell(self, other: int, name: str, *content: Any) -> None:
        """Send a message to a broker, which takes it in whatever life it has."""
        broker = self.group[other]
        self.network.send(self.number, other, broker.take, name, content)

    def take(self, name: str, content: tuple[Any, ...]) -> None:
        """A message has arrived."""
        if self.alive:
            self._act(self.life, getattr(self, f"on_{name}"), content)

    # -- the core ------------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Step the core and carry its effects out."""
        before = self.core.state
        effects = self.core.step(event, self.world.now_ms)
        if before is not self.core.state:
            self.ledger.count(f"{before.name} {self.core.state.name}")
        for effect in effects:
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        """One effect."""
        match effect:
            case Publish(tenure=tenure):
                self.publish(tenure)
            case Order(step=step):
                self.order(step)
            case WriteFile(record=record):
                self.write(record)
            case Ask():
                self.ask(effect)
            case AnswerPromise(address=address, epoch=epoch, why_not=why_not):
                asker = self.questions.pop((address, epoch), None)
                self.ledger.count("promised" if not why_not else "not promised")
                if asker is not None:
                    self.tell(self.number_of(address), "answer", asker, self.describe())
            case Release(epoch=epoch, peers=peers):
                for address in peers:
                    self.tell(self.number_of(address), "release", epoch)
            case Follow(master=master):
                self.follows, self.target = True, master.broker
            case Unfollow():
                self.follows = False
                self.unlink()
            case Reject():
                self.ledger.count("rejected")
                self.waiting = self.waiting_link = None
            case Stream():
                self.stream()
            case Register():
                self.registration = effect
                self.register()
            case Ended(failure=why) | Refuse(why=why):
                self.last_answer = why
                self.ledger.count("order refused" if why else "order done")
            case Plan(losses=losses):
                self.last_answer = "; ".join(losses)
            case MayStop():
                self.world.after_ms(0, self.die_cleanly, self.life)

    def register(self) -> None:
        """Register at the name server, as the last effect says."""
        if (last := self.registration) is not None:
            self.network.send(self.number, -1, self.names.register, self.number, last.is_master, last.epoch)

    def die_cleanly(self, life: int) -> None:
        """The end of a clean stop."""
        if self.alive and self.life == life:
            self.alive = False
            self.disk.flushed = len(self.disk.log)

    def publish(self, tenure: Tenure) -> None:
        """Store the word."""
        self.word = tenure
        ledger, disk = self.ledger, self.disk
        if tenure.state is not TenureState.MASTER:
            self.to_slaves = {}
            return
        ledger.story.append(f"{self.world.now_ms} ms: broker {self.number} is master of epoch {tenure.epoch}")
        owner = ledger.owners.setdefault(tenure.epoch, self.number)
        if owner != self.number:
            ledger.problems.append(f"brokers {owner} and {self.number} have been masters of epoch {tenure.epoch}")
        is_saved = disk.synced is not None and disk.synced.is_master and disk.synced.epoch == tenure.epoch
        if tenure.epoch and not is_saved:
            text = f"broker {self.number} is master of epoch {tenure.epoch}, its disk has {disk.synced}"
            ledger.problems.append(text)
        self.appended_from = len(disk.log)
        is_newest = tenure.epoch == max(ledger.owners)
        self.check_acknowledged("becomes master", self.world.now_ms if is_newest else self.asked_ms)

    def check_acknowledged(self, when: str, until_ms: int) -> None:
        """The log has each record that was acknowledged until then.

        A start as master of an older epoch has asked before. A newer master may have begun since, and no slave of that
        one reports to this broker.
        """
        log, ledger = self.disk.log, self.ledger
        if ledger.may_lose:
            return
        for index, tag in ledger.acknowledged.items():
            if ledger.acknowledged_ms[index] < until_ms and (index >= len(log) or log[index] != tag):
                text = f"broker {self.number} {when} at {self.world.now_ms} ms without record {tag} at {index}"
                ledger.problems.append(text)
                return

    def order(self, step: Step) -> None:
        """Workers take their time, and die now and then."""
        self.step_number += 1
        if step is Step.STAND:
            self.unlink()
        dies = self.world.random.random() < self.fault_rate
        self.after(self.world.random.uniform(0.1, 15), self.end_step, self.step_number, step, dies)

    def end_step(self, number: int, step: Step, dies: bool) -> None:
        """A worker is done, or dead."""
        if number == self.step_number:
            self.step(StepFailed(step, "it died") if dies else StepDone(step, len(self.disk.log)))

    def write(self, record: TenureRecord) -> None:
        """A thread writes the file."""
        self.writing = record
        self.after(self.world.random.uniform(0.1, 5), self.end_write, record)

    def end_write(self, record: TenureRecord) -> None:
        """The file is written, or the disk is full, or a sync has failed."""
        self.writing, disk = None, self.disk
        chance = self.world.random.random() / self.fault_rate if self.fault_rate else 3
        if self.next_failure is not None:
            failure, self.next_failure = self.next_failure, None
            if not failure.is_old_kept:
                disk.seen, disk.synced, disk.has_failed = record, record, True
            self.step(failure)
        elif chance > 2:
            disk.seen = disk.synced = record
            disk.has_failed = False
            self.step(FileWritten())
        elif chance > 1:
            self.step(FileFailed("no space", is_old_kept=True))
        else:
            disk.seen, disk.synced, disk.has_failed = record, self.world.random.choice((disk.synced, record)), True
            self.step(FileFailed("EIO", is_old_kept=False))

    # -- questions -----------------------------------------------------------------------------------------------------

    def number_of(self, address: str) -> int:
        """The broker with this address."""
        return int(address.removeprefix("b:"))

    def describe(self) -> Peer:
        """This broker for peers."""
        return self.core.describe(self.addresses, len(self.disk.log), is_linked=self.to_master is not None)

    @property
    def addresses(self) -> Addresses:
        """Both ports."""
        return Addresses(self.own.broker, self.own.broker)

    def ask(self, effect: Ask) -> None:
        """Ask the peers of the effect, and those that the name server knows: here all, if it can be reached."""
        peers = {self.number_of(address) for address in effect.peers}
        is_cut = {(self.number, -1), (-1, self.number)} & self.network.cuts
        if effect.uses_name_servers and not is_cut:
            peers |= {broker.number for broker in self.group} - {self.number}
        self.round, self.asked_ms = (effect.round, peers, set()), self.world.now_ms
        for number in peers:
            self.tell(number, "ask", self.number, (self.life, effect.round), effect.epoch, self.describe())
        self.after(ROUND_MS if peers else 0, self.end_round, effect.round)

    def on_ask(self, asker: int, question: tuple[int, int], epoch: int, peer: Peer) -> None:
        """A peer asks, and shows itself."""
        self.step(PeerSeen(peer))
        if epoch:
            self.questions[peer.addresses.broker, epoch] = question
            self.step(PromiseAsked(epoch, peer.addresses.broker, is_linked=self.to_master is not None))
        else:
            self.tell(asker, "answer", question, self.describe())

    def on_answer(self, question: tuple[int, int], peer: Peer) -> None:
        """A peer has answered."""
        life, number = question
        if life != self.life or self.round is None or self.round[0] != number:
            return
        _, peers, answered = self.round
        answered.add(peer.broker_id)
        self.step(PeerSeen(peer, number))
        if self.round is not None and self.round[0] == number and answered >= peers:
            self.end_round(number)

    def end_round(self, number: int) -> None:
        """All have answered, or their time is over."""
        if self.round is not None and self.round[0] == number:
            peers = tuple(f"b:{peer}" for peer in sorted(self.round[1]))
            self.round = None
            self.step(RoundEnded(number, len(self.disk.log), peers))

    def on_release(self, epoch: int) -> None:
        """A peer has given its promotion up."""
        self.step(Released(epoch))

    # -- the stream ----------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Flush, report, send, look for a master."""
        now, random = self.world.now_ms, self.world.random
        if random.random() < 0.7:
            self.disk.flushed = len(self.disk.log)
        if self.core.due_ms is not None and now >= self.core.due_ms:
            self.step(Tick())
        if not self.alive:
            return
        link = self.to_master
        if link is not None and now - link.heard_ms > SILENT_MS:
            self.unlink()
        elif link is not None:
            self.tell(link.other, "report", self.number, link.number, self.disk.flushed, len(self.disk.log))
        elif self.follows and self.core.state is State.SLAVE and self.waiting is None:
            self.find_master()
        for other, slave in list(self.to_slaves.items()):
            if now - slave.heard_ms > SILENT_MS:
                del self.to_slaves[other]
        self.acknowledge()
        if random.random() < BEAT_MS / REGISTER_MS:
            self.register()
        self.after(BEAT_MS, self.beat)

    def find_master(self) -> None:
        """Shake hands with the master that is known."""
        known = [self.number_of(self.target)] if self.target else []
        if not {(self.number, -1), (-1, self.number)} & self.network.cuts and self.names.master is not None:
            known.append(self.names.master)
        known = [number for number in known if number != self.number]
        if known:
            other = self.world.random.choice(known)
            self.link_number += 1
            number = self.life << 32 | self.link_number
            self.tell(other, "handshake", number, self.describe(), tuple(self.disk.log))

    def on_handshake(self, number: int, peer: Peer, log: tuple[int, ...]) -> None:
        """A slave shows itself and its log. It follows if that is a beginning of ours, and cuts it if not."""
        self.step(PeerSeen(peer))
        if self.core.state is not State.MASTER:
            return
        slave = peer.broker_id
        own, record = self.disk.log, self.core.record
        differs = (index for index, (his, ours) in enumerate(zip(log, own, strict=False)) if his != ours)
        common = next(differs, min(len(log), len(own)))
        if common == len(log):
            self.to_slaves[slave] = Link(number, slave, self.world.now_ms)
        known = (*(f"b:{other}" for other in self.to_slaves), *self.core.others)
        peers = tuple(address for address in dict.fromkeys(known) if address != f"b:{slave}")
        policy = self.own.policy
        accepted = Accepted(self.addresses, record.epoch, record.history, policy, peers)
        self.tell(slave, "verdict", self.number, number, accepted, len(log), common)

    def on_verdict(self, master: int, number: int, accepted: Accepted, length: int, common: int) -> None:
        """The master's verdict over the log as it was."""
        is_ours = number == self.life << 32 | self.link_number and length == len(self.disk.log)
        if not is_ours or not self.follows or self.to_master is not None or self.core.state is not State.SLAVE:
            return
        if common == length:
            self.waiting, self.waiting_link = accepted, Link(number, master, self.world.now_ms)
            self.step(accepted)
        elif not tenure_records.why_not_followed(self.core.record, accepted, self.number):
            self.ledger.count("cut")
            del self.disk.log[common:]
            self.disk.flushed = min(self.disk.flushed, common)

    def stream(self) -> None:
        """Take the stream of the master that has accepted us."""
        self.to_master, self.waiting, self.waiting_link = self.waiting_link, None, None
        if self.to_master is not None:
            self.to_master.heard_ms = self.world.now_ms

    def unlink(self) -> None:
        """End the stream, or the attempt."""
        self.to_master = self.waiting = self.waiting_link = None

    def on_report(self, slave: int, number: int, flushed: int, end: int) -> None:
        """A slave reports. It gets the records behind its end."""
        link = self.to_slaves.get(slave)
        if link is None or link.number != number or self.word != Tenure(TenureState.MASTER, self.core.record.epoch):
            return
        link.heard_ms, link.end = self.world.now_ms, flushed
        self.tell(slave, "records", self.number, number, end, tuple(self.disk.log[end : end + 50]))
        self.acknowledge()

    def on_records(self, master: int, number: int, start: int, records: tuple[int, ...]) -> None:
        """Records of the master."""
        link = self.to_master
        if link is None or link.number != number or link.other != master:
            return
        link.heard_ms = self.world.now_ms
        if start == len(self.disk.log):
            self.disk.log.extend(records)

    # -- clients -------------------------------------------------------------------------------------------------------

    def send(self, tag: int) -> None:
        """A client's message."""
        if self.alive and self.world.now_ms >= self.paused_until_ms and self.core.state is State.MASTER:
            self.disk.log.append(tag)

    def acknowledge(self) -> None:
        """Answer records of this tenure that are flushed on as many brokers as the policy wants."""
        if self.core.state is not State.MASTER:
            return
        ends = sorted((link.end for link in self.to_slaves.values()), reverse=True)
        wanted = copies(self.own.policy) - 1
        if len(ends) < wanted:
            return
        end = min([self.disk.flushed, *ends[:wanted]])
        known = self.ledger.acknowledged
        for index in range(self.appended_from, end):
            tag = self.disk.log[index]
            if known.setdefault(index, tag) != tag and not self.ledger.may_lose:
                self.ledger.problems.append(f"records {known[index]} and {tag} have been acknowledged at {index}")
            self.ledger.acknowledged_ms.setdefault(index, self.world.now_ms)
        self.appended_from = max(self.appended_from, end)


def policy_of(brokers: int) -> Policy:
    """SYNC_MASTER of a group."""
    return Policy("SYNC_MASTER", total_replicas=brokers)
