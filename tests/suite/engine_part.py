"""The tests that `make test` runs on epoll, too: sockets, parked and old pulls, syncs, crash points, replication.

All tests run on it by `make test-epoll`. There the drill of crash points hits those of processes with an engine, and a
sample of the others; io_uring has all of them.
"""

PART = (
    "tests/native/test_reader_arena.py",
    "tests/native/test_reader_cold.py",
    "tests/native/test_reader_eviction.py",
    "tests/native/test_reader_hostile.py",
    "tests/native/test_reader_places.py",
    "tests/native/test_reader_pull.py",
    "tests/native/test_reader_send.py",
    "tests/native/test_flusher.py",
    "tests/drill/test_crash_points.py::test_every_crash_point_is_survived[SYNC_FLUSH]",
    "tests/drill/test_failed_fsync.py",
    "tests/drill/test_ha_drill.py",
    "tests/broker/test_processes.py",
)
