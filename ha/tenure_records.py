"""The records of the tenure file that follow from each other: of a master, of a slave, of a promise."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ringmq.ha.epochs import begun, broker_of
from ringmq.ha.tenure_events import Accepted, Peer, PromiseAsked
from ringmq.ipc.tenure import TenureState
from ringmq.store.tenure_file import PEERS_MAX, PROMISES_MAX, Addresses, EpochStart, Policy, Promise, TenureRecord


def peers_of(names: Iterable[str], own: str) -> tuple[str, ...]:
    """Broker ports without doubles, without this broker's own and without the unknown one."""
    return tuple(name for name in dict.fromkeys(names) if name not in ("", own))[:PEERS_MAX]


def floor(record: TenureRecord) -> int:
    """The epoch below which this broker follows no master."""
    return max((record.epoch, *(promise.epoch for promise in record.promises)))


def as_master(record: TenureRecord, policy: Policy, peers: tuple[str, ...], epoch: int, end: int) -> TenureRecord:
    """The record of a master whose log ended at `end` when it took over. An epoch that goes on keeps its history."""
    same = replace(record, is_master=True, policy=policy, peers=peers)
    if epoch == record.epoch:
        return same
    return replace(same, epoch=epoch, history=begun(record.history, epoch, end), promises=())


def begun_at(record: TenureRecord) -> EpochStart:
    """The epoch of a master, and the end of its log when it was promoted. Epoch 0: no promotion has made it one."""
    last = record.history[-1] if record.history else EpochStart(0, 0)
    return last if last.epoch == record.epoch else EpochStart(0, 0)


def as_slave(record: TenureRecord, peers: tuple[str, ...], rival: Peer | None) -> TenureRecord:
    """The record of a demoted master. rival: the peer that has shown a higher epoch, None: an operator has ordered. A
    death behind the write of such a record may lead here again."""
    if rival is None and not record.is_master:
        return record
    if rival is None:
        return replace(record, is_master=False, master=Addresses(), peers=peers)
    master = rival.addresses if rival.tenure.state is TenureState.MASTER else Addresses()
    all_peers = tuple(dict.fromkeys((rival.addresses.broker, *peers)))[:PEERS_MAX]
    return replace(record, is_master=False, epoch=rival.tenure.epoch, master=master, peers=all_peers)


def as_follower(record: TenureRecord, event: Accepted, own: str) -> TenureRecord:
    """The record of a slave that has been accepted."""
    return replace(
        record,
        epoch=event.epoch,
        policy=event.policy,
        master=event.master,
        peers=peers_of((event.master.broker, *event.peers), own),
        history=event.history,
        promises=tuple(promise for promise in record.promises if promise.epoch > event.epoch),
    )


def knows_policy(record: TenureRecord, broker_id: int) -> bool:
    """True if the record of a new control has the policy of the last master.

    A slave notes no master of RocketMQ, and none of epoch 0 while it has no file.
    """
    return record.is_master or not _may_follow_stock(record, broker_id)


def _may_follow_stock(record: TenureRecord, broker_id: int) -> bool:
    """True if no other broker has been promoted since the configuration named a master, or since this one was it."""
    return record.epoch == 0 or broker_of(record.epoch) == broker_id


def why_not_followed(record: TenureRecord, event: Accepted, broker_id: int) -> str:
    """The reason why a slave does not follow the master that has accepted it. "" = it does.

    A stock master has no epoch. A slave that was the last master itself follows it: an operator has demoted it.
    """
    if event.is_stock:
        if _may_follow_stock(record, broker_id) and not record.promises:
            return ""
        return f"stock master {event.master.broker} has no epoch, this broker knows epoch {floor(record)}"
    if event.epoch < floor(record):
        return f"master {event.master.broker} has epoch {event.epoch}, this broker knows epoch {floor(record)}"
    return ""


def why_no_promise(record: TenureRecord, event: PromiseAsked) -> str:
    """The reason why a slave makes no promise. "" = it makes one, or has made it."""
    if event.is_linked:
        return "it follows a master that lives"
    if is_promised(record, event.epoch):
        return ""
    if event.epoch <= floor(record):
        return f"epoch {event.epoch} is not above {floor(record)}"
    if len(record.promises) >= PROMISES_MAX:
        return f"{len(record.promises)} promotions have its promise already"
    return ""


def is_promised(record: TenureRecord, epoch: int) -> bool:
    """True if the slave has promised this epoch."""
    return any(promise.epoch == epoch for promise in record.promises)


def with_promise(record: TenureRecord, event: PromiseAsked) -> TenureRecord:
    """The record of a slave that makes a promise."""
    return replace(record, promises=(*record.promises, Promise(event.epoch, event.address)))


def without_promise(record: TenureRecord, epoch: int) -> TenureRecord:
    """The record of a slave whose promise is not needed any more."""
    return replace(record, promises=tuple(promise for promise in record.promises if promise.epoch != epoch))


def needless_promise(record: TenureRecord, peer: Peer) -> int:
    """The promised epoch that the peer neither tries to get nor has reached, in an answer to a question behind the
    promise. 0 = there is none. A peer with a higher epoch may have been the master of the promised one."""
    for promise in record.promises:
        is_asker = broker_of(promise.epoch) == peer.broker_id
        if is_asker and promise.epoch != peer.taking and peer.tenure.epoch < promise.epoch:
            return promise.epoch
    return 0
