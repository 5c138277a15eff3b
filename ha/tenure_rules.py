"""Rules of a change of the role: the messages that a promotion may lose, and the answers that a start waits for.

An acknowledged message is on as many brokers as the policy of its master asks for, `copies`. A promotion loses none of
them if so many brokers answer that each message is on one of them, if no other log among these is greater, and if they
follow no older master from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ringmq.ha.epochs import Position
from ringmq.ha.replica_policy import ReplicaPolicy
from ringmq.ha.replica_watermark import LEVEL_CACHED
from ringmq.ha.settings import HaSettings
from ringmq.ha.tenure_events import Peer
from ringmq.ipc.tenure import TenureState
from ringmq.store.tenure_file import Policy

FOLLOWS_LIVING = "this broker follows a master that lives, and that may go on to acknowledge messages"
UNNAMED_PEERS = (
    "haAllowedNetworks is empty: no broker of the group is asked, and an old master that comes back does not learn of "
    "this one, so both may acknowledge messages"
)
UNKNOWN_POLICY = "no RingMQ master has accepted this broker since its worker control began"
SERVE = "serve"
HOLD = "hold"
BY_POLICY = ""
"""haStartAlone: a start as master without an answer of a peer serves, or waits for one. By policy: it waits if the
policy was SYNC_MASTER."""


def copies(policy: Policy) -> int:
    """The brokers whose logs have an acknowledged message, the master included. Answers with WAIT=false are no
    acknowledgements here."""
    asked = ReplicaPolicy.from_settings(
        HaSettings(
            broker_role=policy.broker_role,
            replication_policy=policy.replication_policy,
            replica_policy=policy.replica_policy,
            in_sync_replicas=policy.in_sync_replicas,
            min_in_sync_replicas=policy.min_in_sync_replicas,
            total_replicas=policy.total_replicas,
            enable_auto_in_sync_replicas=policy.enable_auto_in_sync_replicas,
        )
    )
    if not asked.waits or asked.level < LEVEL_CACHED:
        return 1
    return asked.minimum if asked.auto else asked.need


def brokers_of(answers: Mapping[str, Peer]) -> set[int | str]:
    """The brokers that have answered. One with two addresses counts once."""
    return {peer.addresses.broker if peer.is_stock else peer.broker_id for peer in answers.values()}


def group_size(policy: Policy, others: Collection[str], answers: Mapping[str, Peer]) -> int:
    """The brokers of the group. `others`: the addresses that are known, without those of this one."""
    silent = set(others) - set(answers)
    return max(1 + len(silent) + len(brokers_of(answers)), policy.total_replicas)


def losses(
    own: Position,
    policy: Policy,
    others: Collection[str],
    answers: Mapping[str, Peer],
    epoch: int = 0,
    *,
    is_known: bool = True,
) -> tuple[str, ...]:
    """Sentences about messages that a promotion may lose. None: it loses no acknowledged message.

    others: the broker ports of the group. answers: broker port -> peer. epoch: peers have been asked to promise it, 0:
    they have not yet. is_known: the policy is that of the last master. Else that one may be a further broker, and may
    have kept messages alone.
    """
    found: list[str] = []
    helpers: set[int] = set()
    for address, peer in sorted(answers.items()):
        if peer.tenure.state is TenureState.MASTER:
            kind = "stock master" if peer.is_stock else "master"
            found.append(f"{kind} {address} lives: it may acknowledge messages behind offset {own.offset}")
        elif peer.is_linked:
            found.append(f"slave {address} follows a master that lives, and that may go on to acknowledge messages")
        elif peer.position > own:
            found.append(
                f"slave {address} has the log up to {peer.position.offset} of epoch {peer.position.epoch}, this broker "
                f"up to {own.offset} of epoch {own.epoch}: rather promote that one"
            )
        elif not peer.is_stock and (not epoch or peer.promised == epoch):
            helpers.add(peer.broker_id)
    size, held_by = group_size(policy, others, answers), copies(policy)
    if not is_known:
        size, held_by = max(2, size), 1
    if 1 + len(helpers) <= size - held_by and not found:
        silent = ", ".join(sorted(set(others) - set(answers))) or "brokers that are not known"
        keeper = policy.broker_role if is_known else "perhaps the last master"
        found.append(
            f"{1 + len(helpers)} of {size} brokers agree, and {keeper} keeps a message on {held_by}: messages "
            f"behind offset {own.offset} may be on others alone ({silent})"
        )
    if not is_known:
        found.append(
            f"{UNKNOWN_POLICY}: the policy of the last one is not known, and this broker would be {policy.broker_role}"
        )
    return tuple(found)


def may_serve(policy: Policy, others: Collection[str], answers: Mapping[str, Peer], start_alone: str) -> bool:
    """True if a start as master may serve after these answers, none of which shows a higher epoch.

    A master with a higher epoch may exist beyond them. It acknowledges nothing without one of them, if there are
    enough. A broker of a group without others serves at once.
    """
    size = group_size(policy, others, answers)
    holds = start_alone == HOLD or (start_alone == BY_POLICY and policy.broker_role == "SYNC_MASTER")
    return not holds or size == 1 or len(brokers_of(answers)) >= max(1, size - copies(policy))
