"""A master and 1..3 slaves under faults, in virtual time: what was promised must hold for every seed.

    python -m tests.ha.simulation --seeds 20000 [--first 0]      many seeds; prints the ones that broke a promise
    python -m tests.ha.simulation --seeds 1 --first 4711         one of them again

Checked while it runs (simulated_master, simulated_slave): what is counted as replicated is on that slave, record by
record; what is acknowledged or readable is held by as many brokers, at the level, as the policy says; a slave shows
nothing that is not confirmed unless its master has been silent for 5 s. Checked at the end, when everything has healed
and the operator has decided what was left to him: all logs are equal, a send is acknowledged again, and every record
that was acknowledged or readable has its offset still, or is in a salvage folder because a rule or a person chose so,
or was lost by faults on every broker that had it, which no policy promises to survive.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ringmq.ha.handshake import ADOPT, SALVAGE
from ringmq.ha.replica_policy import ReplicaPolicy
from ringmq.ha.settings import HaSettings
from ringmq.ha.slave_core import State
from tests.ha.simulated_log import FILE_BYTES, FILE_RECORDS, RECORD_BYTES, Ledger
from tests.ha.simulated_master import BEAT_MS, RESTART_MS, SimulatedMaster
from tests.ha.simulated_slave import TO_MASTER, TO_SLAVE, SimulatedSlave
from tests.ha.simulated_world import Path, World

FAULTS_END_MS = 5_000
HEALED_MS = 30_000
NAME_SERVERS_SILENT_MS = 9000
LONG_AWAY_MS = 9000
"""Long enough for slaves to take the master for gone."""
DECISIONS_MS = range(7_000, HEALED_MS, 2_000)
COMMON = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "slaveTimeout": "300",
    "haHousekeepingInterval": "2000",
    "haMaxGapNotInSync": str(40 * RECORD_BYTES),
}


@dataclass(slots=True)
class Simulation:
    """One seed: what kind of group, what happens to it, what became of it."""

    seed: int
    world: World = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    master: SimulatedMaster = field(init=False)
    slaves: list[SimulatedSlave] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    strict: bool = False
    """Nothing acknowledged may end in a salvage folder."""
    sends_without_wait: bool = False

    def __post_init__(self) -> None:
        self.world = World(self.seed)
        random = self.world.random
        count = random.randint(1, 3)
        properties = self._properties(count)
        self.sends_without_wait = random.random() < 0.3
        rooms = {1 << number: random.choice(("east", "west")) for number in range(1, count + 1)}
        self.master = SimulatedMaster(self.world, HaSettings.from_properties(properties), self.ledger, rooms)
        for number in range(1, count + 1):
            flush = random.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
            own = {"brokerRole": "SLAVE", "flushDiskType": flush, "namesrvAddr": "n:9876"}
            settings = HaSettings.from_properties({**COMMON, "haAllowedNetworks": "10.0.0.1", **own})
            path = Path(self.world, random.choice((0.1, 2, 20)))
            slave = SimulatedSlave(self.world, settings, self.ledger, self.master, path, number, rooms[1 << number])
            slave.name_servers_answer_ms = random.choice((0, 0, 0, random.uniform(0, NAME_SERVERS_SILENT_MS)))
            self.slaves.append(slave)
        self.master.slaves = self.slaves
        policy = ReplicaPolicy.from_settings(self.master.settings)
        waits_for_all = policy.waits and not policy.auto and not policy.rooms and policy.need == count + 1
        automatic = self.master.settings.divergence_rule == ADOPT
        self.strict = waits_for_all and automatic and not self.sends_without_wait
        self.story.append(f"{properties}, {count} slaves in {[slave.room for slave in self.slaves]}")

    def _properties(self, slaves: int) -> dict[str, str]:
        choose = self.world.random.choice
        properties = {
            **COMMON,
            "brokerRole": choose(("SYNC_MASTER",) * 5 + ("ASYNC_MASTER",)),
            "flushDiskType": choose(("SYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH")),
            "haDivergenceRule": choose(("adopt", "adopt", "salvage", "refuse")),
            "haRoom": "east",
            "totalReplicas": str(slaves + 1),
        }
        if properties["brokerRole"] == "SYNC_MASTER":
            properties["replicationPolicy"] = choose(("", "cached", "flushed"))
            properties["replicaPolicy"] = choose(("", "one", "majority", "all", "rooms"))
            properties["inSyncReplicas"] = str(self.world.random.randint(1, slaves + 1))
            need = ReplicaPolicy.from_settings(HaSettings.from_properties(properties)).need
            properties["minInSyncReplicas"] = str(self.world.random.randint(1, need))
            properties["enableAutoInSyncReplicas"] = choose(("true", "false"))
        return properties

    # -- what happens --------------------------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """All of it; the promises that were broken."""
        random = self.world.random
        self.master.start()
        for slave in self.slaves:
            self.world.after_ms(random.uniform(0, 500), slave.start)
        self.world.after_ms(10, self._produce)
        for _ in range(random.randint(2, 9)):
            self.world.after_ms(random.uniform(300, FAULTS_END_MS), self._fault)
        self.world.after_ms(FAULTS_END_MS + 1000, self._repair)
        for at_ms in DECISIONS_MS:
            self.world.after_ms(at_ms, self._decide)
        end_ms = FAULTS_END_MS + 2000
        self.world.run(end_ms)
        while end_ms < HEALED_MS and not self._healed():
            end_ms += 1000
            self.world.run(end_ms)
        self.world.run(end_ms + BEAT_MS)
        self._check(end_ms + BEAT_MS)
        return self.ledger.problems

    def _healed(self) -> bool:
        stalled_us = max(until for slave in self.slaves for until in slave.path.stalled_until_us)
        calm = self.master.alive and not self.master.held and stalled_us < self.world.now_us
        return calm and all(map(self._follows, self.slaves))

    def _follows(self, slave: SimulatedSlave) -> bool:
        """Its stream runs, and it has what the master has."""
        first = max(slave.log.first, self.master.log.first)
        link = slave.connection
        streams = link is not None and link.streaming and not link.is_dead_here and slave.core.state is State.TRANSFER
        return streams and slave.log.tags[first:] == self.master.log.tags[first:]

    def _produce(self) -> None:
        random = self.world.random
        if self.world.now_ms < FAULTS_END_MS:
            for _ in range(random.choice((1, 1, 1, 8))):
                self.master.send(wait=not (self.sends_without_wait and random.random() < 0.3))
            self.world.after_ms(random.expovariate(1 / 60), self._produce)

    def _fault(self) -> None:
        slave = self.world.random.choice(self.slaves)
        faults: list[Callable[[SimulatedSlave], None]] = [
            self._kill_master,
            self._crash_master,
            self._kill_slave,
            self._crash_slave,
            self._stall,
            self._break_link,
            self._partition,
            self._fill_disk,
            self._retire_file,
            self._wipe_master,
        ]
        weights = (3, 8, 4, 5, 4, 4, 5, 2, 2, 1)
        fault = self.world.random.choices(faults, weights)[0]
        self.story.append(f"{self.world.now_ms} ms: {fault.__name__[1:]}, slave {slave.broker_id}")
        fault(slave)

    def _kill_master(self, _: SimulatedSlave) -> None:
        self._end_master(silently=False, ruin=lambda: None)

    def _crash_master(self, _: SimulatedSlave) -> None:
        self._end_master(silently=True, ruin=lambda: self.master.log.crash_host(self.world.random))

    def _wipe_master(self, _: SimulatedSlave) -> None:
        self._end_master(silently=True, ruin=self.master.log.wipe)

    def _end_master(self, silently: bool, ruin: Callable[[], None]) -> None:
        if self.master.alive:
            self.master.stop(silently)
            ruin()
            away_ms = self.world.random.choice((1500, 1500, 1500, LONG_AWAY_MS))
            self.world.after_ms(RESTART_MS + self.world.random.uniform(0, away_ms), self.master.start)

    def _kill_slave(self, slave: SimulatedSlave) -> None:
        self._end_slave(slave, silently=False, ruin=lambda: None)

    def _crash_slave(self, slave: SimulatedSlave) -> None:
        self._end_slave(slave, silently=True, ruin=lambda: slave.log.crash_host(self.world.random))

    def _end_slave(self, slave: SimulatedSlave, silently: bool, ruin: Callable[[], None]) -> None:
        if slave.alive:
            slave.stop(silently)
            ruin()
            self.world.after_ms(RESTART_MS + self.world.random.uniform(0, 1500), slave.start)

    def _stall(self, slave: SimulatedSlave) -> None:
        slave.path.stall(self.world.random.choice((TO_SLAVE, TO_MASTER)), self.world.random.uniform(50, 1500))

    def _partition(self, slave: SimulatedSlave) -> None:
        for direction in (TO_SLAVE, TO_MASTER):
            slave.path.stall(direction, self.world.random.uniform(500, 5000))

    def _break_link(self, slave: SimulatedSlave) -> None:
        """A reset: what is under way is gone, and both sides hear of it."""
        connection = slave.connection
        if connection is not None and not connection.is_dead_here:
            connection.up.is_cut = connection.down.is_cut = True
            self.master.gone(connection, "reset")
            slave.receive("closed", "reset")

    def _fill_disk(self, slave: SimulatedSlave) -> None:
        slave.disk_full = True

    def _retire_file(self, _: SimulatedSlave) -> None:
        """Retention: the oldest file of the master goes."""
        log = self.master.log
        if self.master.alive and log.first + 2 * FILE_RECORDS < log.end:
            log.retire(FILE_RECORDS)

    def _repair(self) -> None:
        from ringmq.ha.slave_events import StoreRecovered

        for slave in self.slaves:
            slave.disk_full = False
            if slave.alive:
                slave.step(StoreRecovered())

    def _decide(self) -> None:
        """The operator: adopt what can be adopted where the rule does nothing, salvage what has parted."""
        for broker_id, verdict in self.master.held.items():
            longer = verdict.offset == self.master.range.append_offset
            self.master.operator[broker_id] = ADOPT if longer and self.world.random.random() < 0.5 else SALVAGE

    # -- what became of it ---------------------------------------------------------------------------------------------

    def _check(self, end_ms: int) -> None:
        master, problem = self.master, self.ledger.problem
        for slave in self.slaves:
            if not self._follows(slave):
                problem(
                    f"{slave.host} is {slave.core.state.name} at {slave.log.end}, the master ends at {master.log.end}"
                )
        tag = master.send(wait=True)
        self.world.run(end_ms + 250)
        rooms_there = not master.core.policy.rooms or {"east", "west"} <= set(master.rooms.values())
        flushes = master.settings.replication_policy != "flushed" or all(slave.flushes for slave in self.slaves)
        if rooms_there and flushes and (tag, 0) not in master.answers:
            problem(f"no send is acknowledged after everything has healed: {tag}, {master.answers[-1:]}")
        for tag, why in self.ledger.promised.items():
            if not self._kept(tag):
                problem(f"record {tag} was {why} at {self.ledger.index_of[tag]} and is gone")

    def _kept(self, tag: int) -> bool:
        index, log = self.ledger.index_of[tag], self.master.log
        if index < log.first or (index < log.end and log.tags[index] == tag):
            return True
        had, lost = self.ledger.cached[tag], self.ledger.lost[tag]
        if had == lost:
            return True
        return tag in self.ledger.salvaged and not self.strict


def broken(seeds: Iterable[int]) -> dict[int, list[str]]:
    """Seed -> broken promises, for those that have any."""
    return {seed: problems for seed in seeds if (problems := Simulation(seed).run())}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    failures = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        simulation = Simulation(seed)
        if problems := simulation.run():
            failures += 1
            print(f"seed {seed}:", *simulation.story, *problems[:5], sep="\n  ", flush=True)
    print(f"{arguments.seeds} seeds from {arguments.first} on: {failures} broke a promise")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
