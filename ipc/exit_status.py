"""Exit statuses of the broker and its workers, those of sysexits.h where one fits (docs/operating.md)."""

EXIT_CLEAN = 0
EXIT_UNCLEAN_STOP = 71
EXIT_WORKER_KEEPS_DYING = 70
EXIT_RESTART_STORE = 72
EXIT_DEAF_READER = 73
"""A read worker has received nothing for 5 s while bytes waited on its sockets: it is replaced."""
EXIT_IMPOSSIBLE = 79
"""A worker has met a state that cannot be (native/src/must.h, RMQ_EXIT_IMPOSSIBLE); its last line says which."""
EXIT_RESTED = 80
"""A worker has nothing to do: it is dormant until it is wanted. A SIGTERM from elsewhere ends it with EXIT_CLEAN
instead, and it is replaced: it may have had work."""
EXIT_USAGE = 64
EXIT_STORE_REFUSED = 65
"""It is another's, newer, of other sizes, or damaged in a way that a start does not repair."""
EXIT_ENGINE_REFUSED = 69
EXIT_BAD_CONFIG = 78
EXIT_NOT_RESTARTABLE = (EXIT_USAGE, EXIT_ENGINE_REFUSED, EXIT_BAD_CONFIG)  # starting again cannot help
