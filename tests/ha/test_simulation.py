"""The cores keep what they promise in simulated groups under faults; and broken rules are noticed.

RINGMQ_SIMULATION_SEEDS says how many seeds (150 by default); `python -m tests.ha.simulation --seeds 20000`
runs as many without pytest and tells the story of each one that fails.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.ha import handshake, master_core, master_peer, replica_policy, replica_watermark, slave_core, waiter
from tests.ha.simulation import Simulation

SEEDS = int(os.environ.get("RINGMQ_SIMULATION_SEEDS", "150"))
BROKEN_RULE_SEEDS = 400
Patch = pytest.MonkeyPatch


def first_broken(seeds: int) -> tuple[int, list[str]] | None:
    """The first seed that breaks a promise, and which."""
    results = ((seed, Simulation(seed).run()) for seed in range(seeds))
    return next(((seed, problems) for seed, problems in results if problems), None)


@pytest.mark.timeout(0)
def test_what_was_promised_holds() -> None:
    assert first_broken(SEEDS) is None


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = Simulation(7), Simulation(7)
    first.run(), second.run()
    assert first.story == second.story
    assert first.master.answers == second.master.answers
    assert first.master.answers


def test_the_seeds_reach_what_they_are_about(monkeypatch: Patch) -> None:
    """Every verdict but refuse and every code is given, records are lost, salvaged and adopted, slaves give up."""
    verdicts, codes, lost, salvaged, unlimited = set(), set(), 0, 0, 0
    real, real_limited = handshake.decide, slave_core.SlaveCore._limited

    def decide(*arguments: Any) -> handshake.Verdict:
        verdict = real(*arguments)
        verdicts.add((verdict.kind, verdict.adopt))
        return verdict

    def limited(core: slave_core.SlaveCore, offset: int) -> list[slave_core.Effect]:
        nonlocal unlimited
        unlimited += offset == slave_core.NO_LIMIT
        return real_limited(core, offset)

    monkeypatch.setattr(handshake, "decide", decide)
    monkeypatch.setattr(slave_core.SlaveCore, "_limited", limited)
    for seed in range(120):
        simulation = Simulation(seed)
        simulation.run()
        codes |= {code for _, code in simulation.master.answers}
        lost, salvaged = lost + len(simulation.ledger.lost), salvaged + len(simulation.ledger.salvaged)
    assert {kind for kind, _ in verdicts} == {"compare", "accept", "start_at", "cut", "hold"}
    assert ("hold", True) in verdicts
    assert codes >= {0, 11, 12}
    assert lost and salvaged and unlimited


def _fewer_replicas(patch: Patch) -> None:
    real = replica_watermark.watermark

    def one_less(requirement: replica_watermark.Requirement, *rest: Any) -> int:
        parts = tuple(
            replica_watermark.Condition(part.peers, part.count - 1, part.level) for part in requirement.conditions
        )
        return real(replica_watermark.Requirement(parts), *rest)

    patch.setattr(replica_watermark, "watermark", one_less)


def _answers_without(what: str) -> Callable[[Patch], None]:
    def broken(patch: Patch) -> None:
        real = waiter.verdict

        def verdict(waits: waiter.WaitSettings, *rest: Any) -> int | None:
            values = {name: getattr(waits, name) for name in waiter.WaitSettings.__struct_fields__}
            return real(waiter.WaitSettings(**{**values, what: False}), *rest)

        patch.setattr(waiter, "verdict", verdict)

    return broken


def _tails_are_not_compared(patch: Patch) -> None:
    patch.setattr(handshake, "_compare", lambda peer, own, checksum_of: handshake._Agreement(peer.max_offset, False))


def _what_straddles_the_end_is_not_asked_for(patch: Patch) -> None:
    patch.setattr(handshake.PeerClaim, "windows_end", 0)


def _a_cut_keeps_too_much(patch: Patch) -> None:
    real = handshake.decide

    def decide(peer: handshake.PeerClaim, own: handshake.MasterView, checksum_of: Any) -> handshake.Verdict:
        verdict = real(peer, own, checksum_of)
        return handshake.Verdict(handshake.ACCEPT, peer.max_offset) if verdict.kind == handshake.CUT else verdict

    patch.setattr(handshake, "decide", decide)


def _every_report_is_flushed(patch: Patch) -> None:
    patch.setattr(master_peer.MasterPeer, "level", replica_watermark.LEVEL_FLUSHED)


def _rooms_do_not_matter(patch: Patch) -> None:
    patch.setattr(
        replica_policy.ReplicaPolicy,
        "full",
        lambda policy, replicas: replica_policy.Requirement(
            (replica_policy.Condition((1 << 16) - 1, policy.need - 1, policy.level),) if policy.waits else ()
        ),
    )


def _the_minimum_does_not_matter(patch: Patch) -> None:
    real = replica_policy.ReplicaPolicy.lowered
    patch.setattr(
        replica_policy.ReplicaPolicy,
        "lowered",
        lambda policy, replicas: real(replica_policy.ReplicaPolicy(policy.level, policy.need), replicas),
    )


def _a_slave_shows_more(patch: Patch) -> None:
    real = slave_core.SlaveCore._limited
    patch.setattr(
        slave_core.SlaveCore, "_limited", lambda core, offset: real(core, min(offset * 2, slave_core.NO_LIMIT))
    )


def _a_lost_link_is_a_lost_master(patch: Patch) -> None:
    patch.setattr(slave_core, "MASTER_UNKNOWN_MS", 0)


def _a_master_that_cannot_be_asked_is_followed(patch: Patch) -> None:
    patch.setattr(
        slave_core.SlaveCore,
        "_nobody_to_ask",
        lambda core, now_ms: core._transfer("", slave_core.NO_LIMIT, now_ms),
    )


def _a_held_master_writes_on(patch: Patch) -> None:
    real = waiter.refusal
    patch.setattr(waiter, "refusal", lambda waits, marks, held, wait: real(waits, marks, False, wait))


def _connections_count(patch: Patch) -> None:
    patch.setattr(master_core, "standing", lambda peers, *_: {peer.slot for peer in peers if peer.watch})


BROKEN_RULES = [
    _fewer_replicas,
    _answers_without("sync_flush"),
    _answers_without("sync_replication"),
    _tails_are_not_compared,
    _what_straddles_the_end_is_not_asked_for,
    _a_cut_keeps_too_much,
    _every_report_is_flushed,
    _rooms_do_not_matter,
    _the_minimum_does_not_matter,
    _a_slave_shows_more,
    _a_lost_link_is_a_lost_master,
    _a_master_that_cannot_be_asked_is_followed,
    _a_held_master_writes_on,
    _connections_count,
]
"""What somebody could get wrong; each is seen within some hundred seeds."""


@pytest.mark.parametrize("broken_rule", BROKEN_RULES, ids=lambda rule: rule.__name__.strip("_"))
def test_a_broken_rule_is_noticed(broken_rule: Callable[[Patch], None], monkeypatch: Patch) -> None:
    broken_rule(monkeypatch)
    assert first_broken(BROKEN_RULE_SEEDS) is not None
