"""replicationPolicy x replicaPolicy x the replicas that are there, as requirements; and the watermark of these."""

import random
from itertools import product

import pytest

from ringmq.ha.replica_policy import Replica, ReplicaPolicy, can_meet
from ringmq.ha.replica_watermark import (
    LEVEL_CACHED,
    LEVEL_FLUSHED,
    LEVEL_HANDED,
    LEVEL_RECEIVED,
    LEVEL_SENT,
    PEERS_MAX,
    Condition,
    PeerOffsets,
    Requirement,
    watermark,
)
from ringmq.ha.settings import HaSettings


def policy(role: str = "SYNC_MASTER", **properties: str) -> ReplicaPolicy:
    return ReplicaPolicy.from_settings(HaSettings.from_properties({"brokerRole": role, **properties}))


@pytest.mark.parametrize(
    ("properties", "need"),
    [
        ({}, 2),
        ({"inSyncReplicas": "1"}, 2),
        ({"inSyncReplicas": "2"}, 2),
        ({"inSyncReplicas": "3"}, 3),
        ({"replicaPolicy": "one", "inSyncReplicas": "3"}, 2),
        ({"replicaPolicy": "majority", "totalReplicas": "2"}, 2),
        ({"replicaPolicy": "majority", "totalReplicas": "3"}, 2),
        ({"replicaPolicy": "majority", "totalReplicas": "4"}, 3),
        ({"replicaPolicy": "majority", "totalReplicas": "5"}, 3),
        ({"replicaPolicy": "all", "totalReplicas": "4"}, 4),
    ],
)
def test_how_many_replicas_a_policy_needs(properties: dict[str, str], need: int) -> None:
    found = policy(**properties)
    assert (found.need, found.waits) == (need, True)
    assert found.full([]) == Requirement((Condition(0, need - 1, LEVEL_CACHED),))


@pytest.mark.parametrize(
    "found", [policy("ASYNC_MASTER"), policy(replicationPolicy="none"), policy(replicaPolicy="none")]
)
def test_nobody_is_waited_for_when_the_words_say_so(found: ReplicaPolicy) -> None:
    there = [Replica(0, LEVEL_CACHED, "", True)]
    assert not found.waits
    assert found.full(there) == found.lowered(there) == found.answers(there) == Requirement()


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("handed", LEVEL_HANDED),
        ("sent", LEVEL_SENT),
        ("received", LEVEL_RECEIVED),
        ("cached", LEVEL_CACHED),
        ("flushed", LEVEL_FLUSHED),
    ],
)
def test_levels_have_their_words(word: str, level: int) -> None:
    assert policy(replicationPolicy=word).full([]).conditions[0].level == level


def test_lowered_to_what_is_live_but_not_below_the_minimum() -> None:
    for need, minimum, live in product((2, 3, 4), (1, 2, 3), range(4)):
        found = policy(inSyncReplicas=str(need), minInSyncReplicas=str(min(minimum, need)))
        there = [Replica(slot, LEVEL_CACHED, "", slot < live) for slot in range(3)]
        wanted = max(min(need, 1 + live), min(minimum, need))
        count = sum(part.count for part in found.lowered(there).conditions)
        assert count == wanted - 1, (need, minimum, live)
        assert found.answers(there) == found.full(there), "answers are not lowered without enableAutoInSyncReplicas"


def test_a_room_that_is_gone_is_not_asked_for_while_lowered() -> None:
    found = policy(replicaPolicy="rooms", haRoom="east", minInSyncReplicas="2")
    east, west = Replica(0, LEVEL_CACHED, "east", True), Replica(1, LEVEL_CACHED, "west", True)
    both = Requirement((Condition(1, 1, LEVEL_CACHED), Condition(2, 1, LEVEL_CACHED)))
    assert found.full([east, west]) == found.lowered([east, west]) == both
    assert found.lowered([west]) == Requirement((Condition(2, 1, LEVEL_CACHED),))
    assert found.lowered([]) == Requirement((Condition(0, 1, LEVEL_CACHED),)), "the minimum, by whoever comes"


def test_can_meet_counts_peers_of_each_condition() -> None:
    requirement = Requirement((Condition(0b0011, 1, LEVEL_CACHED), Condition(0b1100, 2, LEVEL_CACHED)))
    assert can_meet(requirement, 0b1101)
    assert not can_meet(requirement, 0b0111)
    assert can_meet(Requirement(), 0)


def test_the_watermark_is_the_largest_offset_that_meets_all_conditions() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        append = chance.randint(0, 40)
        peers = [_peer(chance, append) for _ in range(PEERS_MAX)]
        conditions = tuple(
            Condition(chance.getrandbits(16), chance.randint(0, 5), chance.randint(1, 5))
            for _ in range(chance.randint(0, 4))
        )
        holds = [offset for offset in range(append + 1) if all(_holds(part, peers, offset) for part in conditions)]
        assert watermark(Requirement(conditions), peers, append) == max(holds, default=0)


def _peer(chance: random.Random, append: int) -> PeerOffsets:
    offsets = sorted(chance.randint(0, append) for _ in range(3))
    return PeerOffsets(
        transfer=chance.random() < 0.8,
        counts=chance.random() < 0.8,
        level=chance.choice((LEVEL_CACHED, LEVEL_FLUSHED)),
        sent_offset=offsets[2],
        received_offset=offsets[1],
        reported_offset=offsets[0],
    )


def _holds(part: Condition, peers: list[PeerOffsets], offset: int) -> bool:
    """The condition by its words: so many of these peers have everything below the offset."""
    have = 0
    for slot, peer in enumerate(peers):
        if part.peers >> slot & 1 and peer.transfer and peer.counts:
            words = {LEVEL_SENT: peer.sent_offset, LEVEL_RECEIVED: peer.received_offset}
            reported = peer.reported_offset if peer.level >= part.level else -1
            have += part.level == LEVEL_HANDED or words.get(part.level, reported) >= offset
    return have >= part.count


def test_at_most_four_conditions_fit() -> None:
    with pytest.raises(ValueError, match="5 conditions"):
        Requirement((Condition(1, 1, LEVEL_CACHED),) * 5)
