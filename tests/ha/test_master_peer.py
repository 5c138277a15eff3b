"""Who stands for a replica, and when a slave counts as in sync."""

from ringmq.ha.control_messages import Identity
from ringmq.ha.in_sync import SyncWatch
from ringmq.ha.master_peer import MasterPeer, standing
from ringmq.ha.settings import HaSettings

ANYBODY = HaSettings()


def peer(slot: int, host: str, broker_id: int | None = None, streams: bool = True, number: int = 0) -> MasterPeer:
    """Connections are numbered as their places unless told otherwise."""
    identity = None if broker_id is None else Identity(host, 4000 + slot, broker_id)
    watch = SyncWatch(1000, 3000, 0, 0) if streams else None
    return MasterPeer(slot, host, 4000 + slot, number or slot, identity, watch)


def test_the_newest_connection_of_a_broker_id_stands_for_it() -> None:
    assert standing([peer(1, "a", 7), peer(2, "b", 7), peer(3, "a", 8)], ANYBODY, 0) == {2, 3}
    assert standing([peer(1, "a", 7, number=9), peer(2, "b", 7)], ANYBODY, 0) == {1}


def test_a_connection_that_is_in_sync_is_not_displaced_from_another_host() -> None:
    slave, stranger = peer(1, "a", 7), peer(2, "b", 7)
    slave.counts_since_ms = 0
    assert standing([slave, stranger], ANYBODY, 0) == {1}
    assert standing([slave, peer(3, "a", 7)], ANYBODY, 0) == {3}, "its own host: it has connected again"
    assert slave.watch is not None
    slave.watch.observe(0, 5000, silent_since_ms=1)
    assert standing([slave, stranger], ANYBODY, 10_000) == {2}, "it is far behind: another machine may have its place"


def test_a_connection_without_a_stream_stands_for_nobody() -> None:
    assert standing([peer(1, "a", 7), peer(2, "a", 7, streams=False)], ANYBODY, 0) == {1}


def test_a_host_is_one_stock_slave() -> None:
    assert standing([peer(1, "a"), peer(2, "a"), peer(3, "b")], ANYBODY, 0) == {2, 3}


def test_a_connection_that_said_nothing_may_be_the_slave_beside_it() -> None:
    assert standing([peer(1, "a"), peer(2, "a", 7), peer(3, "b")], ANYBODY, 0) == {2, 3}


def test_only_allowed_replicas_count() -> None:
    settings = HaSettings.from_properties({"haAllowedReplicas": "7;b"})
    there = [peer(1, "a", 7), peer(2, "a", 8), peer(3, "b"), peer(4, "c")]
    assert standing(there, settings, 0) == {1, 3}


def test_a_room_is_what_the_slave_says_else_what_the_property_says() -> None:
    settings = HaSettings.from_properties({"haReplicaRooms": "7=west;b=east"})
    said = MasterPeer(1, "a", 4000, 1, Identity("a", 4000, 7, room="north"))
    assert [one.room(settings) for one in (said, peer(2, "a", 7), peer(3, "b"), peer(4, "c"))] == [
        "north",
        "west",
        "east",
        "",
    ]


def test_silence_begins_with_data_that_waits_for_a_report() -> None:
    watch = SyncWatch(max_gap_bytes=1000, timeout_ms=3000, reported_offset=0, append_offset=0)
    watch.observe(0, 500, silent_since_ms=0)
    assert watch.due_ms() is None, "nothing was sent yet"
    watch.observe(0, 500, silent_since_ms=11_000)
    assert watch.due_ms() == 14_000
    assert watch.in_sync(13_999)
    assert not watch.in_sync(14_000)
    watch.observe(1, 500, silent_since_ms=15_000)
    assert watch.in_sync(15_000), "progress, however small"
    watch.observe(500, 500, silent_since_ms=0)
    assert watch.due_ms() is None
    assert watch.in_sync(10**9)


def test_the_gap_counts_to_the_masters_end() -> None:
    watch = SyncWatch(max_gap_bytes=1000, timeout_ms=3000, reported_offset=0, append_offset=0)
    watch.observe(1, 1001, 0)
    assert not watch.in_sync(0)
    watch.observe(2, 1001, 0)
    assert watch.in_sync(0)
