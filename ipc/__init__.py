"""Processes and the memory they share: segments, the plane, watermarks, placement, supervisor, worker life cycle.

Owns the /dev/shm files named after a store, and the rules by which the supervisor starts, watches and ends workers.
Must stay true: one writer per shared word; workers start by exec; no worker outlives its supervisor. May import:
ringmq.native, ringmq.remoting.
"""
