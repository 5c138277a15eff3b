"""Processes and the memory they share: segments, the plane, watermarks, placement, supervisor, worker life cycle.

Owns /dev/shm files named after a store and the rules of who starts, watches and ends worker processes.
Must stay true: one writer per shared word; workers start by exec; no worker outlives its supervisor.
May import: ringmq.native.
"""
