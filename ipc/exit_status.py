"""Exit statuses of the broker and its workers, those of sysexits.h where one fits (docs/operating.md)."""

EXIT_CLEAN = 0
EXIT_UNCLEAN_STOP = 71
EXIT_CRASH_LOOP = 70
EXIT_RESTART_STORE = 72
EXIT_HUNG_READER = 73
"""A read worker has received nothing for 5 s while bytes waited on its sockets. The supervisor replaces it."""
EXIT_INVARIANT = 79
"""A worker has met a broken invariant (native/src/plane/invariant.h, RMQ_EXIT_INVARIANT). Its last line names it.
"""
EXIT_RESTED = 80
"""A worker has no work and becomes dormant. After a SIGTERM from outside, the worker ends with EXIT_CLEAN instead. The
supervisor then replaces it, because it may have had work.
"""
EXIT_USAGE = 64
EXIT_STORE_REFUSED = 65
"""The store belongs to another broker, is of a newer version, has other sizes, or has damage that a start does not
repair.
"""
EXIT_ENGINE_REFUSED = 69
EXIT_BAD_CONFIG = 78
EXIT_PACKAGE_REPLACED = 75
"""A worker has died, and the installed package is not the one that the broker runs. A new start runs the new one."""
EXIT_NOT_RESTARTABLE = (EXIT_USAGE, EXIT_ENGINE_REFUSED, EXIT_PACKAGE_REPLACED, EXIT_BAD_CONFIG)
"""Another start of the worker alone cannot help."""
