"""Two or three brokers of a group change their roles under faults, in virtual time.

    python -m tests.ha.tenure_simulation --seeds 20000 [--first 0]   many seeds; prints those that broke a promise
    python -m tests.ha.tenure_simulation --seeds 1 --first 4711      one of them again

Faults: kill -9 of brokers and of control alone, power cuts, stopped processes, cut and late directions of the network,
full disks, failed syncs, workers that die in a step, files that are removed. An operator promotes, demotes and tries.

Checked all the time: no two brokers are masters of one epoch; a master's epoch is on its disk; no two records are
acknowledged at one place of the log; each new master has all acknowledged records, unless the operator has accepted a
loss. Checked at the end, when all is healed: one master is left, of the highest epoch, and the others follow it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from ringmq.ha.tenure_events import Demote, Promote, Stop
from ringmq.ha.tenure_memory import Own
from ringmq.ha.tenure_rules import UNKNOWN_POLICY
from ringmq.ha.tenure_states import State
from ringmq.ipc.tenure import TenureState
from tests.ha.simulated_world import World
from tests.ha.tenure_world import Ledger, Names, Network, SimulatedBroker, policy_of

FAULTS_END_MS = 12_000
END_MS = 40_000
NAME_SERVER = -1


@dataclass(slots=True)
class TenureSimulation:
    """One seed."""

    seed: int
    world: World = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    names: Names = field(default_factory=Names)
    network: Network = field(init=False)
    brokers: list[SimulatedBroker] = field(default_factory=list)
    tags: count[int] = field(default_factory=lambda: count(1))
    is_healed: bool = False

    def __post_init__(self) -> None:
        self.world = World(self.seed)
        random = self.world.random
        self.network = Network(self.world)
        size = random.choice((2, 2, 3, 3, 3))
        self.ledger.may_lose = random.random() < 0.15
        policy = policy_of(size)
        for number in range(size):
            own = Own(f"b:{number}", number, number == 0, policy)
            self.brokers.append(SimulatedBroker(own, self.world, self.network, self.names, self.ledger))
        faulty = random.random() < 0.6
        for broker in self.brokers:
            broker.group = self.brokers
            broker.fault_rate = 0.08 if faulty else 0.0
        self.ledger.story.append(f"{size} brokers, faulty disks: {faulty}, losses accepted: {self.ledger.may_lose}")

    # -- what happens --------------------------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """All of it; the promises that were broken."""
        random, world = self.world.random, self.world
        for broker in self.brokers:
            world.after_ms(random.uniform(0, 300), broker.start)
        world.after_ms(10, self._produce)
        for _ in range(random.randint(4, 25)):
            world.after_ms(random.uniform(800, FAULTS_END_MS), self._happen)
        world.after_ms(FAULTS_END_MS, self._heal)
        end_ms = FAULTS_END_MS + 1000
        while end_ms < END_MS and not self.ledger.problems:
            world.run(end_ms)
            if self._is_calm():
                break
            self._help()
            end_ms += 1000
        if not self.ledger.problems:
            self._check()
        return self.ledger.problems

    def _produce(self) -> None:
        for broker in self.brokers:
            broker.send(next(self.tags))
        if not self.is_healed:
            self.world.after_ms(self.world.random.expovariate(1 / 40), self._produce)

    def _happen(self) -> None:
        random = self.world.random
        events: list[tuple[Callable[[SimulatedBroker], None], int]] = [
            (self._kill, 5),
            (self._cut_power, 4),
            (self._kill_control, 4),
            (self._stop, 3),
            (self._pause, 3),
            (self._cut, 6),
            (self._delay, 3),
            (self._mend, 6),
            (self._promote, 14),
            (self._demote, 4),
            (self._try, 2),
            (self._lose_file, 1),
        ]
        act = random.choices([event for event, _ in events], [weight for _, weight in events])[0]
        broker = random.choice(self.brokers)
        self.ledger.story.append(f"{self.world.now_ms} ms: {act.__name__[1:]} {broker.number}")
        act(broker)

    def _again(self, broker: SimulatedBroker) -> None:
        self.world.after_ms(self.world.random.choice((20, 500, 4000)), broker.start)

    def _kill(self, broker: SimulatedBroker) -> None:
        broker.die(has_power_cut=False)
        self._again(broker)

    def _cut_power(self, broker: SimulatedBroker) -> None:
        broker.die(has_power_cut=True)
        self._again(broker)

    def _kill_control(self, broker: SimulatedBroker) -> None:
        broker.kill_control()

    def _stop(self, broker: SimulatedBroker) -> None:
        if broker.alive:
            broker.step(Stop())
        self.world.after_ms(1500, self._again, broker)

    def _pause(self, broker: SimulatedBroker) -> None:
        broker.paused_until_ms = self.world.now_ms + self.world.random.choice((100, 800, 4000))

    def _cut(self, broker: SimulatedBroker) -> None:
        """Cut one direction, both, or the broker off from all."""
        random = self.world.random
        other = random.choice([NAME_SERVER, *(peer.number for peer in self.brokers if peer is not broker)])
        others = [NAME_SERVER, *range(len(self.brokers))] if random.random() < 0.3 else [other]
        for number in others:
            ways = ((broker.number, number), (number, broker.number))
            self.network.cuts.update(random.choice((ways, ways, ways[:1], ways[1:])))

    def _delay(self, broker: SimulatedBroker) -> None:
        for other in self.brokers:
            self.network.late.add((broker.number, other.number))

    def _mend(self, broker: SimulatedBroker) -> None:
        self.network.cuts.clear()
        self.network.late.clear()

    def _lose_file(self, broker: SimulatedBroker) -> None:
        """A person removes the file of a broker that is down. The group may lose messages then, and forget an epoch."""
        if not broker.alive:
            broker.disk.seen = broker.disk.synced = None
            self.ledger.may_lose = True
            self.ledger.count("file lost")

    # -- the operator --------------------------------------------------------------------------------------------------

    def _promote(self, broker: SimulatedBroker) -> None:
        """Often the one that takes over from a dead master, sometimes any."""
        if broker.alive and broker.core.state is not State.BEGINNING:
            accepts = self.ledger.may_lose and self.world.random.random() < 0.5
            broker.step(Promote(accepts_loss=accepts, is_linked=broker.to_master is not None))

    def _demote(self, broker: SimulatedBroker) -> None:
        master = next((broker for broker in self.brokers if broker.alive and broker.core.state is State.MASTER), broker)
        if master.alive:
            master.step(Demote())

    def _try(self, broker: SimulatedBroker) -> None:
        if broker.alive:
            broker.step(Promote(is_dry_run=True))

    def _heal(self) -> None:
        self.is_healed = True
        self._mend(self.brokers[0])
        for broker in self.brokers:
            broker.fault_rate, broker.paused_until_ms = 0.0, 0

    def _help(self) -> None:
        """Start the dead. Without a master, promote the broker with the greatest log. All brokers answer by now, so it
        loses nothing if only the policy of the last master is not known."""
        for broker in self.brokers:
            broker.start()
        states = {broker.core.state for broker in self.brokers if broker.alive}
        if states <= {State.SLAVE, State.HOLDS, State.NOTES}:
            self.ledger.count("helped")
            best = max(self.brokers, key=lambda broker: broker.describe().position)
            accepts = self.ledger.may_lose or best.last_answer.startswith(UNKNOWN_POLICY)
            best.step(Promote(accepts_loss=accepts, is_linked=best.to_master is not None))

    # -- what became of it ---------------------------------------------------------------------------------------------

    def _is_calm(self) -> bool:
        masters = [broker for broker in self.brokers if broker.alive and broker.core.state is State.MASTER]
        if len(masters) != 1 or not all(broker.alive for broker in self.brokers):
            return False
        slaves = [broker for broker in self.brokers if broker is not masters[0]]
        return all(
            slave.core.state is State.SLAVE and slave.to_master is not None and slave.disk.log == masters[0].disk.log
            for slave in slaves
        )

    def _check(self) -> None:
        problem = self.ledger.problems.append
        if not self._is_calm():
            states = [
                f"{broker.number} {broker.core.state.name} of {broker.core.record.epoch}, log {len(broker.disk.log)}, "
                f"{broker.last_answer}"
                for broker in self.brokers
            ]
            problem(f"no single master is left with the others behind it: {states}")
            return
        master = next(broker for broker in self.brokers if broker.core.state is State.MASTER)
        if master.core.record.epoch != max(self.ledger.owners) and "file lost" not in self.ledger.counts:
            problem(f"the master has epoch {master.core.record.epoch}, of {sorted(self.ledger.owners)}")
        for broker in self.brokers:
            broker.check_acknowledged("ends", self.world.now_ms)
            if broker.word is not None and broker.word.state not in (TenureState.MASTER, TenureState.SLAVE):
                problem(f"broker {broker.number} ends as {broker.word}")


def broken(seeds: Iterable[int]) -> dict[int, list[str]]:
    """Seed -> broken promises, for those that have any."""
    return {seed: problems for seed in seeds if (problems := TenureSimulation(seed).run())}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    failures = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        simulation = TenureSimulation(seed)
        if problems := simulation.run():
            failures += 1
            print(f"seed {seed}:", *simulation.ledger.story, *problems[:5], sep="\n  ", flush=True)
    print(f"{arguments.seeds} seeds from {arguments.first} on: {failures} broke a promise")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
