"""The tests that `make test` runs on epoll, too: sockets, parked and old pulls, syncs, replication.

All tests run on it by `make test-epoll`. The drill of crash points has a case on epoll, which runs beside all tests.
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
    "tests/drill/test_failed_fsync.py",
    "tests/drill/test_ha_drill.py",
    "tests/broker/test_processes.py",
)
