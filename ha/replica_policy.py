"""The replicas that must have a byte: replicationPolicy x replicaPolicy x the live replicas, as requirements.

A policy asks for `need` replicas, the master counted, or for one slave in the master's room and one in another. While
fewer are in sync, the policy is lowered, but never below minInSyncReplicas. The confirm offset always follows the
lowered policy. Answers to producers follow it only with enableAutoInSyncReplicas. Rules of need and minimum: RocketMQ's
CommitLog (calcNeedAckNums). RingMQ applies them without controller mode, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ringmq.ha.replica_watermark import LEVEL_CACHED, LEVEL_NONE, LEVELS, Condition, Requirement
from ringmq.ha.settings import HaSettings


class Replica(Struct, frozen=True):
    """A slave that counts. level: of its reports."""

    slot: int
    level: int
    room: str
    in_sync: bool


class ReplicaPolicy(Struct, frozen=True):
    """need and minimum count the master. With level NONE or need 1, answers wait for no slave."""

    level: int
    need: int
    minimum: int = 1
    auto: bool = False
    rooms: bool = False
    own_room: str = ""

    @staticmethod
    def from_settings(settings: HaSettings) -> ReplicaPolicy:
        """The policy of the properties. Without the two policy properties, SYNC_MASTER asks for at least one slave, and
        ASYNC_MASTER for none."""
        words = (settings.replication_policy, settings.replica_policy)
        if settings.broker_role != "SYNC_MASTER" or "none" in words:
            return ReplicaPolicy(LEVEL_NONE, 1)
        need = {
            "": max(settings.in_sync_replicas, 2),
            "one": 2,
            "majority": settings.total_replicas // 2 + 1,
            "all": settings.total_replicas,
            "rooms": 3,
        }[settings.replica_policy]
        return ReplicaPolicy(
            level=LEVELS[settings.replication_policy] if settings.replication_policy else LEVEL_CACHED,
            need=need,
            minimum=settings.min_in_sync_replicas,
            auto=settings.enable_auto_in_sync_replicas,
            rooms=settings.replica_policy == "rooms",
            own_room=settings.room,
        )

    @property
    def waits(self) -> bool:
        """True if answers wait for slaves."""
        return self.level > LEVEL_NONE and self.need > 1

    @property
    def accepts_alone(self) -> bool:
        """True if a master without a slave accepts sends: it waits for none, or the policy is lowered so far."""
        return can_meet(self.answers(()), 0)

    @property
    def wanted(self) -> str:
        """The policy in words."""
        return f"one in room {self.own_room} and one in another" if self.rooms else str(self.need)

    def full(self, replicas: Iterable[Replica]) -> Requirement:
        """The requirement of the policy, whatever replicas are live."""
        if not self.waits:
            return Requirement()
        able = self._able(replicas)
        if not self.rooms:
            return Requirement((Condition(_mask(able), self.need - 1, self.level),))
        own = [replica for replica in able if replica.room == self.own_room]
        other = [replica for replica in able if replica.room not in ("", self.own_room)]
        return Requirement(tuple(Condition(_mask(group), 1, self.level) for group in (own, other)))

    def lowered(self, replicas: Iterable[Replica]) -> Requirement:
        """The requirement while fewer are in sync: the replicas that are, and minInSyncReplicas in any case."""
        able = self._able(replicas)
        full, in_sync = self.full(able), _mask(replica for replica in able if replica.in_sync)
        if can_meet(full, in_sync):
            return full
        kept = tuple(part for part in full.conditions if self.rooms and can_meet(Requirement((part,)), in_sync))
        asked = self.minimum if self.rooms else max(min(self.need, 1 + in_sync.bit_count()), self.minimum)
        if asked - 1 > len(kept):
            kept += (Condition(_mask(able), asked - 1, self.level),)
        return Requirement(kept)

    def answers(self, replicas: Iterable[Replica]) -> Requirement:
        """The requirement for an answer to a producer."""
        return self.lowered(replicas) if self.auto else self.full(replicas)

    def _able(self, replicas: Iterable[Replica]) -> list[Replica]:
        """Replicas whose reports reach the level."""
        return [replica for replica in replicas if replica.level >= self.level]


def can_meet(requirement: Requirement, slots: int) -> bool:
    """True if the peers in the mask `slots` are enough for every condition, once they have the bytes."""
    return all((part.peers & slots).bit_count() >= part.count for part in requirement.conditions)


def _mask(replicas: Iterable[Replica]) -> int:
    return sum(1 << slot for slot in {replica.slot for replica in replicas})
